"""Pairs for the classifier of complexity: lines by hand, and whole files of small runs."""

import dataclasses
import json

import pytest

from experiments.configuration import load
from jaxrag.evaluation.records import read_run
from jaxrag.jobs.complexity_pairs import (
    COUNTS,
    PAIRS,
    ComplexityPairs,
    described,
    pair_line,
    write_pairs,
)
from jaxrag.jobs.tables import tabulate
from jaxrag.methods import adaptive_labels
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.loops import Interleaving
from jaxrag.methods.selectors import Top
from jaxrag.methods.steps import Reader
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
    line = pair_line(record(silver, strategy), ComplexityPairs("iterative_small", 0.0))
    assert line == {
        "question_id": "q7", "part": "train", "input": "Question: Where?\nComplexity:",
        "target": target, "label_from": origin,
    }  # fmt: skip


def test_a_question_without_label_is_left_out():
    assert pair_line(record(None, None), ComplexityPairs()) is None


def test_the_share_that_is_held_out_is_drawn_by_ids():
    def parts(seed):
        settings = ComplexityPairs(held_out=0.25, seed=seed)
        lines = [pair_line(record("none", "none", f"q{i}"), settings) for i in range(400)]
        return [line["part"] for line in lines if line]

    # 100 are expected, with a standard deviation of 8.7
    assert 60 < parts(0).count("held_out") < 140
    assert parts(0) == parts(0) != parts(1)


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
    return dataclasses.replace(run, method=method)


@pytest.fixture(scope="module")
def made(small, tmp_path_factory):
    return tabulate(small, tmp_path_factory.mktemp("made"))


def test_the_pairs_of_a_run(made):
    lines = [json.loads(line) for line in made.read_text().splitlines()]
    assert made.name == PAIRS and [line["question_id"] for line in lines] == [
        f"q{i}" for i in range(6)
    ]
    traces = [one["trace"] for one in read_run(made.parent / "run").records]
    for line, trace in zip(lines, traces, strict=True):
        place = ["none", "single", "multi"].index(trace["label"]["strategy"])
        assert line["target"] == ["easy", "one", "more"][place]
        assert line["input"].startswith("how hard: is ")
    assert {line["part"] for line in lines} == {"train", "held_out"}
    counts = json.loads((made.parent / COUNTS).read_text())
    assert sum(counts["target"].values()) == 6 == sum(counts["part"].values())
    assert described(made).row_count == len(counts["target"])


def test_a_finished_file_is_made_again_to_the_byte(small, made):
    before = made.read_bytes()
    made.unlink()
    assert tabulate(small, made.parent).read_bytes() == before


def test_what_makes_no_pairs(small, made, tmp_path):
    run = made.parent / "run"
    with pytest.raises(InputError, match="Question q0 is in more than one of"):
        write_pairs([run, run], tmp_path)
    with pytest.raises(InputError, match="is not a run directory"):
        write_pairs([tmp_path], tmp_path)
    with pytest.raises(InputError, match="no run: no question is left to train on"):
        write_pairs([], tmp_path)
    other = load(str(tmp_path_config(small)))
    with pytest.raises(InputError, match=r"makes no table; .*configs/adaptive_labels.py"):
        tabulate(other, tmp_path)
    with pytest.raises(InputError, match="held_out is 1"):
        ComplexityPairs(held_out=1)
    assert not (tmp_path / PAIRS).exists()


def tmp_path_config(run):
    """The config of the small run as it was written, another method's."""
    return run.data.path.removesuffix("/data") + "/config.py"


def damaged(made, where, change):
    """A copy of a run with one record changed."""
    copy = where / "copy"
    copy.mkdir()
    for path in (made.parent / "run").iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    lines = [json.loads(line) for line in (copy / "answers.jsonl").read_text().splitlines()]
    change(lines[2])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (copy / "answers.jsonl").write_text(text)
    return copy


def test_runs_that_will_not_do(made, tmp_path):
    failed = damaged(made, tmp_path, lambda line: line.update(error="Boom"))
    with pytest.raises(InputError, match=r"1 of 6 questions of .* failed, such as q2"):
        write_pairs([failed], tmp_path)
    (failed / "metrics.json").unlink()
    with pytest.raises(InputError, match="is not finished"):
        write_pairs([failed], tmp_path)


def test_a_run_of_another_method(made, tmp_path):
    other = damaged(made, tmp_path, lambda line: line["trace"].pop("label"))
    with pytest.raises(InputError, match="no run of adaptive_labels"):
        write_pairs([other], tmp_path)
