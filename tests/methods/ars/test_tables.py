"""Lines of labels and rewards by hand, and whole tables of a small run."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from jaxrag.data.draw import Draw
from jaxrag.evaluation.records import read_run
from jaxrag.experiments import run as script
from jaxrag.methods.ars import labels as ars_labels
from jaxrag.methods.ars import rewards as ars_rewards
from jaxrag.methods.ars.bandit.reward_table import read_table
from jaxrag.methods.ars.labels import MakeLabels, label_line
from jaxrag.methods.ars.ranker.scorer import read_source
from jaxrag.methods.ars.relevance import RelevanceJudge
from jaxrag.methods.ars.rewards import MakeRewards, reward_line
from jaxrag.methods.ars.rewrites import Rewriter
from jaxrag.methods.ars.strategies import Generated
from jaxrag.runs.config_file import load
from jaxrag.steps.candidates import Search
from jaxrag.steps.reader import Reader
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
    line = label_line(LABEL)
    # by log-probability a and c are relevant: one of the first rewrite's, one of the second's
    assert line["relevant_logprob"] == [[1, 0], [0, 1]] and line["labels_logprob"] == [1, 1]
    assert line["relevant"] == [[0, 1], [1, 0]] and line["labels"] == [1, 1]
    assert line["gold"] == [[0, 1], [1, 0]] and line["labels_gold"] == [1, 1]
    assert line["probability"] == [[0.9, 0.2], [0.2, 0.6]] and line["junk"] == 1


def test_unknown_labels_are_null():
    judged = {"logprob": LABEL["trace"]["judged"]["logprob"]}
    record = {**LABEL, "gold_passages": [], "trace": {**LABEL["trace"], "judged": judged}}
    line = label_line(record)
    assert line["labels"] is line["relevant"] is line["gold"] is line["labels_gold"] is None


def reward(answers, gold, task="open"):
    record = {"question_id": "q", "question": "?", "gold_answers": gold,
              "trace": {"answers": answers, "task": task}}  # fmt: skip
    return reward_line(record, "test")


def test_rewards_by_hand():
    # "Rome in Italy" against "Rome": precision 1/3, recall 1: F1 = 1/2
    line = reward(["Rome", "Rome in Italy", "Paris"], ["Rome"])
    assert line["base"] == pytest.approx([1, 0.5, 0])
    assert line["correct"] == line["exact_match"] == [1, 0, 0]
    closed = reward(["yes", "no", "yes it is"], ["yes"], "yes_no")
    assert closed["base"] == closed["correct"] == [1, 0, 0]
    assert reward(["it is true"], ["true"], "fact_checking")["base"] == [1]
    choice = reward(["1.5", "15"], ["1.5"], "multiple_choice")
    assert choice["base"] == choice["exact_match"] == [1, 0]  # as a run scores them
    with pytest.raises(InputError, match="q has no gold answer"):
        reward(["x"], [])


def test_agreement_counts_each_passage_once():
    # of a, b, c the log-probabilities say 1, 0, 1 and gold 0, 1, 0: none agree
    found = ars_labels.agreements([label_line(LABEL)])
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
    judge = RelevanceJudge("logprob", prompts=reader.prompts)
    methods = {
        "labels": ("train", ars_labels.Config(judge=judge, compared=1.0, **common)),
        "rewards": ("both", ars_rewards.Config(order=Generated(), **common)),
    }
    runs = {
        kind: dataclasses.replace(run, method=method, data=Draw(run.data, None, part, 3, 2))
        for kind, (part, method) in methods.items()
    }
    jobs = {"labels": MakeLabels(runs["labels"]), "rewards": MakeRewards(runs["rewards"])}
    return root, jobs, {kind: job.execute(root / kind) for kind, job in jobs.items()}


def test_tables_of_a_run(made):
    _, _, outcomes = made
    labels = [json.loads(line) for line in outcomes["labels"].path.read_text().splitlines()]
    assert len(labels) == 3 and all(len(line["rewrites"]) == 4 for line in labels)
    assert all(len(ids) == 5 for line in labels for ids in line["passages"])
    table = read_table(outcomes["rewards"].path.parent)
    assert table.arms == 4 and table.train.tolist() == [True] * 3 + [False] * 2
    assert table.contexts.shape[0] == 5
    np.testing.assert_allclose(np.linalg.norm(table.contexts, axis=1), 1, rtol=1e-5)
    for outcome in outcomes.values():
        assert outcome.shown[0].row_count >= 5 and not outcome.errors


def test_a_finished_table_is_reproduced_without_model_calls(made):
    root, jobs, outcomes = made
    before = outcomes["rewards"].path.read_bytes()
    outcomes["rewards"].path.unlink()
    assert jobs["rewards"].execute(root / "rewards").path.read_bytes() == before


def test_labels_and_rewards_record_their_source(made):
    _, _, outcomes = made
    source = read_source(outcomes["labels"].path.parent)
    assert source["rewriter"]["n"] == 4 and len(source["corpus"]) == 64
    assert source["language_model"] and "backend" not in source["language_model"]
    found = read_table(outcomes["rewards"].path.parent).source
    assert found["order"] == {"is": "Generated"} and found["reader"]["answer_tokens"] == 3
    assert found["language_model"] == source["language_model"]


def test_gold_labels_need_the_corpus_of_the_gold_passages(made, tmp_path, monkeypatch):
    """Gold passages of another corpus give no labels: null beside a judge's, refused alone."""
    root, jobs, _ = made
    run, records = jobs["labels"].run, read_run(root / "labels" / "run")
    other = SimpleNamespace(name="others", passages=SimpleNamespace(identity="corpus B"))
    monkeypatch.setattr(ars_labels, "load_data", lambda *_: other)
    lines = jobs["labels"].lines(records, tmp_path)
    assert all(line["labels_gold"] is line["gold"] is None for line in lines)
    gold = dataclasses.replace(run, method=dataclasses.replace(run.method, judge=None))
    with pytest.raises(InputError, match=r"of others are of the corpus corpus B, and the index"):
        MakeLabels(gold).lines(records, tmp_path)


def test_failed_questions_leave_no_table(made, tmp_path):
    run = made[1]["labels"].run
    long = dataclasses.replace(run.method.rewriter, tokens=10**6)
    run = dataclasses.replace(run, method=dataclasses.replace(run.method, rewriter=long))
    with pytest.raises(InputError, match=r"3 questions failed .*asks these again"):
        MakeLabels(run).execute(tmp_path)
    assert not (tmp_path / "labels.jsonl").exists()


def test_runs_of_other_methods_are_refused(made):
    labels, rewards = made[1]["labels"].run, made[1]["rewards"].run
    with pytest.raises(InputError, match=r"questions to train on .*jaxrag\.data\.draw\.Draw"):
        MakeRewards(dataclasses.replace(rewards, data=rewards.data.source))
    with pytest.raises(InputError, match=r"MakeLabels needs jaxrag\.methods\.ars\.labels\.Config"):
        MakeLabels(rewards)
    with pytest.raises(InputError, match=r"MakeRewards needs .*ars\.rewards\.Config"):
        MakeRewards(labels)


def test_a_table_is_planned_as_its_run(made, tmp_path, capsys):
    job = made[1]["labels"]
    script.print_plan(job, str(tmp_path))
    told = capsys.readouterr().out
    assert "labels.jsonl" in told and f"{tmp_path / 'run'}: 0 answered, 3 left" in told
