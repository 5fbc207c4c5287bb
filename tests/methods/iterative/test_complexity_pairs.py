"""Pairs for the classifier of complexity: lines by hand, and whole files of small runs."""

import dataclasses
import json

import pytest

from jaxrag.evaluation.records import read_run
from jaxrag.methods.iterative import adaptive_labels, adaptive_rag
from jaxrag.methods.iterative.adaptive_labels import COUNTS, MakeComplexityPairs, pair_line
from jaxrag.methods.iterative.ircot import Interleaving
from jaxrag.runs.config_file import load
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError
from tests.experiments.small_run import PROMPTS, write_small_run

MORE = (
    PROMPTS
    + """
[reason]
chat = false
user = "{passages} {question}{so_far}"

[complexity]
chat = false
user = "how hard: {question}"
words = ["easy", "one", "more"]
"""
)


def record(silver, strategy, name="q7"):
    label = {"silver": silver, "strategy": strategy}
    return {"question_id": name, "question": "Where?", "trace": {"label": label}}


@pytest.mark.parametrize(
    "silver, strategy, target, origin",
    [
        ("none", "none", "A", "silver"),
        ("multi", "multi", "C", "silver"),
        (None, "single", "B", "bias"),
    ],
)
def test_lines_by_hand(silver, strategy, target, origin):
    method = adaptive_labels.Config(reader=Reader(prompts="iterative_small"), held_out=0.0)
    line = pair_line(record(silver, strategy), method)
    assert line == {
        "question_id": "q7", "question": "Where?", "part": "train",
        "input": "Question: Where?\nComplexity:", "target": target, "label_from": origin,
    }  # fmt: skip


def test_a_question_without_label_is_left_out():
    assert pair_line(record(None, None), adaptive_labels.Config()) is None


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A run of labels by a small model with random weights."""
    root = tmp_path_factory.mktemp("complexity")
    run = load(str(write_small_run(root, questions=6)))
    (root / "prompts.toml").write_text(MORE)
    method = adaptive_labels.Config(
        candidates=OnePath(n=2),
        select=Top(k=2),
        loop=Interleaving(k=2, max_steps=2, sentence_tokens=6),
        reader=Reader(prompts=str(root / "prompts.toml"), answer_tokens=3),
        bias="multi",
        held_out=0.4,
    )
    return MakeComplexityPairs(dataclasses.replace(run, method=method))


@pytest.fixture(scope="module")
def made(small, tmp_path_factory):
    return small.execute(tmp_path_factory.mktemp("made"))


def test_pairs_of_a_run(made):
    (shown, _), path, *_ = made
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert path.name == "pairs.jsonl"
    assert [line["question_id"] for line in lines] == [f"q{i}" for i in range(6)]
    traces = [one["trace"] for one in read_run(path.parent / "run").records]
    for line, trace in zip(lines, traces, strict=True):
        place = ["none", "single", "multi"].index(trace["label"]["strategy"])
        assert line["target"] == ["easy", "one", "more"][place]
        assert line["input"].startswith("how hard: is ")
        assert trace["answer"]["junk"] is True  # as the last strategy recorded its own
    assert {line["part"] for line in lines} == {"train", "held_out"}
    counts = json.loads((path.parent / COUNTS).read_text())
    assert sum(counts["target"].values()) == 6 == sum(counts["part"].values())
    assert shown.row_count == len(counts["target"])


def test_runs_without_pairs_are_refused(small, tmp_path):
    with pytest.raises(InputError, match=r"needs .*adaptive_labels\.Config"):
        MakeComplexityPairs(dataclasses.replace(small.run, method=adaptive_rag.Config()))
    alone = dataclasses.replace(small.run.method, held_out=0.999)
    run = dataclasses.replace(small.run, method=alone, limit=1)
    with pytest.raises(InputError, match="no question is left to train on"):
        MakeComplexityPairs(run).execute(tmp_path)
    assert not (tmp_path / "pairs.jsonl").exists()
