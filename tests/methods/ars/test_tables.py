"""Lines of labels and rewards, and whole tables of a small run."""

import dataclasses
import json

import numpy as np
import pytest

from experiments import tabulate
from experiments.configuration import load
from jaxrag.evaluation import table_figures
from jaxrag.jobs import tables
from jaxrag.methods import ars_labels, ars_rewards
from jaxrag.methods.relevance import Judge
from jaxrag.methods.rewrite_steps import Generated, Search
from jaxrag.methods.rewrites import Rewriter
from jaxrag.methods.steps import Reader
from jaxrag.settings import Draw
from jaxrag.training.selector_table import read_table
from jaxrag.types import InputError
from tests.experiments.small_run import PROMPTS, write_small_run

MORE = (
    PROMPTS
    + """
[rewrite]
chat = false
user = "Q: {question}\\n1."

[relevance]
chat = false
user = "{question} {passage}:"
words = ["a", "the"]
"""
)

LABEL = {
    "question_id": "q",
    "question": "Where?",
    "gold_passages": ["b", "z"],
    "trace": {
        "rewrites": {"texts": ["x", "y"], "filled": 1},
        "searches": [{"ids": ["a", "b"]}, {"ids": ["b", "c"]}],
        "judged": {
            "logprob": {
                "a": {"relevant": 1, "probability": 0.9, "junk": 0},
                "b": {"relevant": 0, "probability": 0.2, "junk": 0},
                "c": {"relevant": 1, "probability": 0.6, "junk": 0},
            },
            "word": {
                "a": {"relevant": 0, "probability": None, "junk": 1},
                "b": {"relevant": 1, "probability": None, "junk": 0},
                "c": {"relevant": 0, "probability": None, "junk": 0},
            },
        },
    },
}


def test_labels_by_hand():
    line = tables.label_line(LABEL)
    # by log-probability a and c are relevant: one of the first rewrite's, one of the second's
    assert line["relevant_logprob"] == [[1, 0], [0, 1]] and line["labels_logprob"] == [1, 1]
    assert line["relevant"] == [[0, 1], [1, 0]] and line["labels"] == [1, 1]
    assert line["gold"] == [[0, 1], [1, 0]] and line["labels_gold"] == [1, 1]
    assert line["probability"] == [[0.9, 0.2], [0.2, 0.6]] and line["junk"] == 1


def test_labels_that_are_not_known_are_null():
    judged = {"logprob": LABEL["trace"]["judged"]["logprob"]}
    record = {**LABEL, "gold_passages": [], "trace": {**LABEL["trace"], "judged": judged}}
    line = tables.label_line(record)
    assert line["labels"] is line["relevant"] is line["gold"] is line["labels_gold"] is None


def reward(answers, gold, task="open"):
    record = {"question_id": "q", "question": "?", "gold_answers": gold,
              "trace": {"answers": answers, "task": task}}  # fmt: skip
    return tables.reward_line(record, "test")


def test_rewards_by_hand():
    # "Rome in Italy" against "Rome": precision 1/3, recall 1: F1 = 1/2
    line = reward(["Rome", "Rome in Italy", "Paris"], ["Rome"])
    assert line["base"] == pytest.approx([1, 0.5, 0])
    assert line["correct"] == line["exact_match"] == [1, 0, 0]
    closed = reward(["yes", "no", "yes it is"], ["yes"], "yes_no")
    assert closed["base"] == closed["correct"] == [1, 0, 0]
    assert reward(["it is true"], ["true"], "fact_checking")["base"] == [1]
    with pytest.raises(InputError, match="q has no gold answer"):
        reward(["x"], [])


def test_agreement_counts_each_passage_once():
    # of a, b, c the log-probabilities say 1, 0, 1 and gold 0, 1, 0: none agree
    found = table_figures.agreements([tables.label_line(LABEL)])
    assert found["log-probability and gold: agree"].mean == 0
    # chance: (2 * 1 + 1 * 2) / 9 = 4/9; kappa = (0 - 4/9) / (5/9) = -0.8
    assert found["log-probability and gold: kappa"].mean == pytest.approx(-0.8)
    assert found["word and gold: agree"].mean == 1 == found["word and gold: kappa"].mean
    assert found["probability and gold: AUC"].mean == 0  # b, the gold one, is the least probable
    assert found["word and log-probability: the second says relevant"].mean == pytest.approx(2 / 3)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Both tables of a few questions, by a small model with random weights."""
    root = tmp_path_factory.mktemp("tables")
    run = load(str(write_small_run(root, questions=9)))
    (root / "prompts.toml").write_text(MORE)
    reader, search = Reader(prompts=str(root / "prompts.toml"), answer_tokens=3), Search(m=5)
    common = {"rewriter": Rewriter(n=4, tokens=30), "search": search, "reader": reader}
    judge = Judge(prompts=reader.prompts)
    methods = {
        "labels": ("train", ars_labels.Config(judge=judge, compared=1.0, **common)),
        "rewards": ("both", ars_rewards.Config(order=Generated(), **common)),
    }
    runs = {
        kind: dataclasses.replace(run, method=method, data=Draw(run.data, None, part, 3, 2))
        for kind, (part, method) in methods.items()
    }
    paths = {kind: tables.tabulate(run, root / kind) for kind, run in runs.items()}
    return root, runs, paths


def test_the_tables_of_a_run(made):
    _, _, paths = made
    labels = [json.loads(line) for line in paths["labels"].read_text().splitlines()]
    assert len(labels) == 3 and all(len(line["rewrites"]) == 4 for line in labels)
    assert all(len(ids) == 5 for line in labels for ids in line["passages"])
    table = read_table(paths["rewards"].parent)
    assert table.arms == 4 and table.train.tolist() == [True] * 3 + [False] * 2
    assert table.contexts.shape[0] == 5
    np.testing.assert_allclose(np.linalg.norm(table.contexts, axis=1), 1, rtol=1e-5)
    for path in paths.values():
        assert table_figures.described(path).row_count >= 5


def test_a_finished_table_is_made_again_without_asking(made, monkeypatch):
    root, runs, paths = made
    before = paths["rewards"].read_bytes()
    paths["rewards"].unlink()
    assert tables.tabulate(runs["rewards"], root / "rewards").read_bytes() == before


def test_questions_that_failed_leave_no_table(made, tmp_path):
    _, runs, _ = made
    long = dataclasses.replace(runs["labels"].method.rewriter, tokens=10**6)
    method = dataclasses.replace(runs["labels"].method, rewriter=long)
    run = dataclasses.replace(runs["labels"], method=method)
    with pytest.raises(InputError, match=r"3 of 3 questions failed .*asks these again"):
        tables.tabulate(run, tmp_path)
    assert not (tmp_path / "labels.jsonl").exists()


def test_what_is_no_table(made, tmp_path):
    _, runs, _ = made
    run = dataclasses.replace(runs["rewards"], data=runs["rewards"].data.of)
    with pytest.raises(InputError, match=r"questions to train on .* jaxrag.settings.Draw"):
        tables.tabulate(run, tmp_path)
    other = dataclasses.replace(run, method=object())
    with pytest.raises(InputError, match="makes no table"):
        tables.tabulate(other, tmp_path)
    with pytest.raises(InputError, match="give --workdir"):
        tabulate.main(["tabulate", "--config", "configs/ars_tables.py:labels@tiny"])
