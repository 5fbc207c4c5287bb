"""The ranker's job: its files, its table, and labels that will not do."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.data.leakage import TRAINED_ON, question_set
from jaxrag.methods.ars.ranker import evaluation, job, scorer
from jaxrag.methods.ars.ranker.data import RankingExample, read_labels, split
from jaxrag.methods.ars.ranker.evaluation import metrics, random_orders, table
from jaxrag.methods.ars.ranker.training import RankerTraining
from jaxrag.types import InputError
from tests.methods.ars.ranker import small_ranker
from tests.training.processes import on_one_device

NAN = float("nan")


def lines(count: int = 12) -> list[dict[str, Any]]:
    """Gold labels are the model's, upside down."""
    return [
        {
            "question_id": one.question_id,
            "question": one.question,
            "rewrites": list(one.rewrites),
            "filled": 0,
            "labels": list(one.labels),
            "labels_logprob": None,
            "labels_gold": [5 - y for y in one.labels],
        }
        for one in small_ranker.examples(count)
    ]


def write(directory: Path, some: list[dict[str, Any]]) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / "labels.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in some))
    return file


HOW = RankerTraining(
    steps=4,
    unit="questions",
    batch=8,
    microbatch=2,
    learning_rate=5e-3,
    evaluate_every=2,
    save_every=2,
)


def made(directory: Path, **more: Any) -> job.TrainRanker:
    write(directory / "labels", lines())
    start = small_ranker.write(directory)
    told: dict[str, Any] = {"max_length": 16, "held_out": 0.25, "training": HOW} | more
    return job.TrainRanker(str(directory / "labels"), str(start), **told)


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    on_one_device(monkeypatch)


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_files_of_a_job(tmp_path: Path) -> None:
    settings, work = made(tmp_path), tmp_path / "work"
    source = {"corpus": "corpus A", "rewriter": {"n": 4}}
    (tmp_path / "labels" / "source.json").write_text(json.dumps(source))
    trained = settings.execute(work).path
    assert trained == work / "ranker" and scorer.read_source(trained) == source
    known, held = split(small_ranker.examples(12), 0.25)
    seen = question_set("", (one.question for one in known)).hashes
    np.testing.assert_array_equal(np.load(trained / TRAINED_ON), seen)
    # the stored scores are those of the stored ranker
    kept, ranker = read(work / "held_out.jsonl"), scorer.load(str(trained))
    assert [line["question_id"] for line in kept] == [one.question_id for one in held]
    for one, line in zip(held, kept, strict=True):
        scores = ranker.score([one.question] * len(one.rewrites), one.rewrites)
        np.testing.assert_array_equal(np.float32(line["trained"]), scores)
    rows = {(row["ranker"], row["labels"]): row for row in read(work / "ranker.jsonl")}
    assert {*rows} == {
        (name, label) for label in ("model", "gold") for name in ("trained", "cosine", "random")
    }
    # gold labels are the model's upside down, so every right pair is wrong
    for name in ("trained", "cosine"):
        means = [rows[name, label]["pairwise_accuracy"][0] for label in ("model", "gold")]
        assert sum(means) == pytest.approx(1)
    evaluated = [line for line in read(work / "metrics.jsonl") if "watched" in line]
    assert [line["step"] for line in evaluated] == [0, 2, 4]
    assert len(evaluated[0]["watched"]) == 9 and "cosine ndcg" in evaluated[0]["each"]
    last = evaluated[-1]["watched"]
    assert last["kendall_tau"] == pytest.approx(
        rows["trained", "model"]["kendall_tau"][0], abs=1e-4
    )
    # other labels or another source are another job
    (tmp_path / "labels" / "source.json").write_text(json.dumps(source | {"corpus": "corpus B"}))
    with pytest.raises(InputError, match=r'source\.corpus: "corpus A" recorded, "corpus B" now'):
        settings.execute(work)
    write(tmp_path / "labels", lines(13))
    with pytest.raises(InputError, match="another"):
        settings.execute(work)


def test_nothing_held_out_trains_on_all_and_writes_no_table(tmp_path: Path) -> None:
    how = dataclasses.replace(HOW, evaluate_every=0)
    job_of_all = made(tmp_path, held_out=0.0, training=how)
    path = job_of_all.execute(tmp_path / "work").path
    assert scorer.load(str(path)).max_length == 16
    assert not (tmp_path / "work" / "ranker.jsonl").exists()
    with pytest.raises(InputError, match="held_out is 0, so nothing can be evaluated"):
        dataclasses.replace(job_of_all, training=RankerTraining(evaluate_every=5))


def test_random_orders_have_chance_metrics(tmp_path: Path) -> None:
    some = small_ranker.examples(60)
    orders = random_orders(some, seed=0)
    found = metrics({"random": orders}, some)
    # 100 orders of 60 questions: the mean of tau has a deviation under 0.01
    assert abs(np.nanmean(found["random kendall_tau"])) < 0.03
    assert abs(np.nanmean(found["random pairwise_accuracy"]) - 0.5) < 0.02
    np.testing.assert_array_equal(random_orders(some[5:6], seed=0)[0], orders[5])
    assert not np.array_equal(random_orders(some[5:6], seed=1)[0], orders[5])


def test_the_table_by_hand() -> None:
    """Labels 2, 1, 0, 0 in scores 3, 4, 2, 1: one of 5 pairs is wrong.

    tau-b = (4 - 1) / sqrt(6 * 5); gains 3 and 1: DCG = 1 + 3 / log2(3), at best 3 + 1 / log2(3).
    Question b has no order, so every value is that of question a.
    """
    some = [
        RankingExample("a", "?", ("w", "x", "y", "z"), (2, 1, 0, 0)),
        RankingExample("b", "?", ("x", "y"), (0, 0)),
    ]
    found = [np.array([3.0, 4.0, 2.0, 1.0]), np.array([1.0, 0.0])]
    best = [np.array([9.0, 8.0, 1.0, 1.0]), np.array([0.0, 1.0])]
    trained, cosine = table("model", metrics({"trained": found, "cosine": best}, some))
    dcg = (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    wanted = {"pairwise_accuracy": 4 / 5, "kendall_tau": 3 / math.sqrt(30), "ndcg": dcg}
    for metric, value in wanted.items():
        mean, low, high, n = trained[metric]
        assert (mean, n) == (pytest.approx(value), 1) and low <= mean <= high
        assert cosine[metric][0] == pytest.approx(1)
        minus, *_, count, p = cosine["trained_minus"][metric]
        assert (minus, count, p) == (pytest.approx(value - 1), 1, 1)
    assert trained["questions"] == 2 and "trained_minus" not in trained
    # several scores of a question: the mean of their metrics, here of right and wrong
    both = metrics({"": [np.array([[2.0, 1.0], [1.0, 2.0]])]}, [flat("c", (1, 0))])
    assert both["pairwise_accuracy"].tolist() == [0.5] and both["kendall_tau"].tolist() == [0]
    assert both["ndcg"] == pytest.approx((1 + 1 / math.log2(3)) / 2)
    nothing = table("model", metrics({"trained": found[1:]}, some[1:]))
    assert nothing[0]["kendall_tau"] == [None, None, None, 0]
    json.dumps(nothing, allow_nan=False)


def flat(name: str, labels: tuple[int, ...]) -> RankingExample:
    return RankingExample(name, "?", tuple("xyz"[: len(labels)]), labels)


def test_cosines_of_question_and_rewrite() -> None:
    """Vectors by hand: the question at 0 degrees, rewrites at 0 and 90."""

    class Vectors:
        def embed(self, texts: list[str]) -> np.ndarray:
            return np.array([[1.0, 0.0] if text in ("?", "x") else [0.0, 1.0] for text in texts])

    encoder: Any = Vectors()
    (found,) = evaluation.cosines(encoder, [flat("a", (1, 0))])
    assert found.tolist() == [1, 0]


def test_labels_of_each_kind(tmp_path: Path) -> None:
    file = write(tmp_path, lines())
    found = read_labels(file, label="model")
    assert [one["model"] for one in found] == small_ranker.examples(12)
    assert found[0]["gold"].labels == tuple(5 - y for y in found[0]["model"].labels)
    assert set(found[0]) == {"model", "gold"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"labels": [1, 2, 3]}, "field 'labels' has 3 items; there are 4 rewrites"),
        ({"labels": [1, 2, NAN, 0]}, "field 'labels' item 3 is nan; a whole number from 0"),
        ({"labels": [1, -2, 0, 0]}, "field 'labels' item 2 is -2"),
        ({"labels_gold": [0]}, "field 'labels_gold' has 1 items"),
        ({"rewrites": ["the cat"]}, "field 'rewrites' has 1 item"),
        ({"question_id": "q0"}, "field 'question_id' is 'q0', as in line 1"),
    ],
)
def test_invalid_lines_are_refused(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    some = lines()
    some[2] = {name: value for name, value in (some[2] | change).items() if value is not ...}
    file = write(tmp_path, some)
    with pytest.raises(InputError, match=re.escape(f"{file}, line 3: {told}")):
        read_labels(file, label="model")


def test_invalid_files_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path, lines())
    with pytest.raises(InputError, match=r"line 1: field 'labels_logprob' is null"):
        read_labels(file, label="logprob")
    write(tmp_path, [])
    with pytest.raises(InputError, match=r"labels\.jsonl is empty"):
        read_labels(file, label="model")
    write(tmp_path, [line | {"labels": [2] * len(line["rewrites"])} for line in lines()])
    with pytest.raises(InputError, match="in none of the 12 questions do two rewrites differ"):
        read_labels(file, label="model")


def test_invalid_jobs_are_refused(tmp_path: Path) -> None:
    settings = made(tmp_path)
    flat = [line | {"labels": [2] * len(line["rewrites"])} for line in lines()[1:]]
    write(tmp_path / "labels", [lines()[0], *flat])
    with pytest.raises(InputError, match=r"in none of the .* questions do two rewrites differ"):
        settings.execute(tmp_path / "work")
    with pytest.raises(InputError, match=r"give --config\.labels=DIRECTORY"):
        dataclasses.replace(settings, labels="").execute(tmp_path / "work")
    assert not (tmp_path / "work").exists()
    wrong: tuple[Any, ...] = (
        {"label": "human"}, {"held_out": 0.0}, {"held_out": NAN}, {"head_seed": -1},
    )  # fmt: skip
    for change in wrong:
        with pytest.raises(InputError, match=next(iter(change))):
            dataclasses.replace(settings, **change)


def test_training_questions_that_are_held_out_are_refused_or_dropped(tmp_path: Path) -> None:
    settings = made(tmp_path)
    write(tmp_path / "labels", [line | {"question": "the same"} for line in lines()])
    with pytest.raises(InputError, match=r"(?s)9 of 9 training questions of .*its held-out part"):
        settings.execute(tmp_path / "work")
    file = write(tmp_path / "labels", [*lines(), lines()[3] | {"question_id": "again"}])
    train, held = job._split(dataclasses.replace(settings, leakage="drop"), file)
    texts = {one.question for one in train}
    assert not texts & {one["model"].question for one in held} and len(train) in (9, 10)
    kept, _ = job._split(dataclasses.replace(settings, leakage="keep"), file)
    assert len(kept) >= len(train)
    assert not (tmp_path / "work").exists()
