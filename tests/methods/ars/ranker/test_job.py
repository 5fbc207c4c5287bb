"""The ranker's job: its files, its table, and labels that will not do."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.evaluation.significance import interval, paired_difference
from jaxrag.functional.ranking import kendall_tau, ndcg, pairwise_accuracy
from jaxrag.methods.ars.ranker import job
from jaxrag.methods.ars.ranker import scorer as rankers
from jaxrag.methods.ars.ranker.data import Example, split
from jaxrag.methods.ars.ranker.figures import Ndcg, figures, random_orders, read_table, table
from jaxrag.methods.ars.ranker.label_file import locate_labels, read_labels
from jaxrag.methods.ars.ranker.settings import Training
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.types import InputError
from tests.methods.ars.ranker import small_ranker


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


def made(directory: Path, **more: Any) -> job.TrainRanker:
    write(directory / "labels", lines())
    start = small_ranker.write(directory)
    how = Training(
        steps=4, batch=8, microbatch=2, learning_rate=5e-3, evaluate_every=2, save_every=2
    )
    told: dict[str, Any] = {"max_length": 16, "held_out": 0.25, "ndcg_k": 3} | more
    return job.TrainRanker(str(directory / "labels"), str(start), how, **told)


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight would compile everything eight times; tests/training has them."""
    import jax

    from jaxrag.training import grad_cache

    all_of_them = grad_cache.data_mesh
    monkeypatch.setattr(grad_cache, "data_mesh", lambda *_: all_of_them(jax.devices()[:1]))


def test_what_a_job_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, work = made(tmp_path), tmp_path / "work"
    trained = settings.execute(work).path
    assert trained == work / "ranker"
    everything = small_ranker.examples(12)
    held = split(everything, 0.25)[1]
    assert len(held) == 3
    # the scores are those of the ranker that lies there, and the cosines those of the start
    kept = [json.loads(line) for line in (work / "held_out.jsonl").read_text().splitlines()]
    assert [line["question_id"] for line in kept] == [one.question_id for one in held]
    ranker, encoder = rankers.load(str(trained)), Encoder.load(settings.checkpoint)
    for one, line in zip(held, kept, strict=True):
        scores = ranker.score([one.question] * len(one.rewrites), one.rewrites)
        np.testing.assert_array_equal(np.float32(line["trained"]), scores)
        vectors = encoder.embed([one.question, *one.rewrites])
        np.testing.assert_allclose(line["cosine"], vectors[1:] @ vectors[0], atol=1e-6)
    rows = {(row["ranker"], row["labels"]): row for row in read_table(work)}
    names = [(name, label) for label in ("model", "gold") for name in ("trained", "cosine")]
    assert {*rows} == {*names, ("random", "model"), ("random", "gold")}
    for name, label in names:
        labels = [np.array(line["labels"][label]) for line in kept]
        scores = [np.array(line[name]) for line in kept]
        for figure, of in (
            ("pairwise_accuracy", pairwise_accuracy),
            ("kendall_tau", kendall_tau),
            ("ndcg", lambda s, y: ndcg(s, y, k=3)),
        ):
            values = np.array([of(s, y) for s, y in zip(scores, labels, strict=True)])
            np.testing.assert_allclose(rows[name, label][figure], interval(values), atol=1e-12)
    # upside down every right pair is wrong
    means = [rows["trained", label]["pairwise_accuracy"][0] for label in ("model", "gold")]
    assert sum(means) == pytest.approx(1) and means[0] != 0.5
    steps = [json.loads(line) for line in (work / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line for line in steps if "watched" in line]
    assert [line["step"] for line in evaluated] == [0, 2, 4]
    assert len(evaluated[0]["watched"]) == 9 and "cosine ndcg" in evaluated[0]["each"]
    last = evaluated[-1]["watched"]
    assert last["kendall_tau"] == pytest.approx(
        rows["trained", "model"]["kendall_tau"][0], abs=1e-4
    )
    # the same call again trains nothing, and other labels or settings are another job's
    before = (work / "ranker.jsonl").read_bytes(), (trained / "model.safetensors").read_bytes()
    assert settings.execute(work).path == trained
    after = (work / "ranker.jsonl").read_bytes(), (trained / "model.safetensors").read_bytes()
    assert before == after
    write(tmp_path / "labels", lines(13))
    with pytest.raises(InputError, match="another"):
        settings.execute(work)


def test_random_orders_are_of_chance(tmp_path: Path) -> None:
    some = small_ranker.examples(60)
    orders = random_orders(some, seed=0)
    found = figures({"random": orders}, some, Ndcg(0, "linear"))
    # 100 orders of 60 questions: the mean of tau has a deviation under 0.01
    assert abs(np.nanmean(found["random kendall_tau"])) < 0.03
    assert abs(np.nanmean(found["random pairwise_accuracy"]) - 0.5) < 0.02
    np.testing.assert_array_equal(random_orders(some[5:6], seed=0)[0], orders[5])
    assert not np.array_equal(random_orders(some[5:6], seed=1)[0], orders[5])


def test_a_table_by_hand() -> None:
    some = [Example("a", "?", ("x", "y"), (1, 0)), Example("b", "?", ("x", "y"), (0, 0))]
    right, wrong = [np.array([1.0, 0.0])] * 2, [np.array([0.0, 1.0])] * 2
    columns = figures({"trained": right, "cosine": wrong}, some, Ndcg(1, "linear"))
    trained, cosine = table("model", columns)
    # question b has no order: one question is left, of which nothing is known but 1 or 0
    assert trained["pairwise_accuracy"] == list(interval(np.array([1.0])))
    assert cosine["kendall_tau"][0] == -1 and cosine["ndcg"][0] == 0 and cosine["questions"] == 2
    minus = cosine["trained_minus"]["kendall_tau"]
    assert minus == list(paired_difference(np.array([1.0]), np.array([-1.0])))
    assert "trained_minus" not in trained
    nothing = table("model", figures({"trained": right[1:]}, some[1:], Ndcg(0, "linear")))
    assert nothing[0]["kendall_tau"] == [None, None, None, 0]
    json.dumps(nothing, allow_nan=False)


def test_labels_of_each_kind(tmp_path: Path) -> None:
    file = write(tmp_path, lines())
    assert locate_labels(str(tmp_path)) == locate_labels(str(file)) == file
    found = read_labels(file, label="model")
    assert [one.example("model") for one in found] == small_ranker.examples(12)
    assert found[0].example("gold").labels == tuple(5 - y for y in found[0].labels["model"])
    assert set(found[0].labels) == {"model", "gold"}


NAN = float("nan")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"labels": [1, 2, 3]}, "field 'labels' has 3 items; there are 4 rewrites"),
        ({"labels": [1, 2, NAN, 0]}, "field 'labels' item 3 is nan; a whole number from 0"),
        ({"labels": [1, 2, 0.5, 0]}, "field 'labels' item 3 is 0.5"),
        ({"labels": [1, -2, 0, 0]}, "field 'labels' item 2 is -2"),
        ({"labels": [1, True, 0, 0]}, "field 'labels' item 2 is True"),
        ({"labels": None}, "field 'labels' is null"),
        ({"labels": 3}, "field 'labels' has no list"),
        ({"labels": ...}, "field 'labels' is missing; the line has question_id"),
        ({"labels_gold": [0]}, "field 'labels_gold' has 1 items"),
        ({"rewrites": ["the cat"]}, "field 'rewrites' has 1 item"),
        ({"rewrites": ["a", " ", "b", "c"]}, "field 'rewrites' item 2 is blank"),
        ({"question": ...}, "field 'question' is missing"),
        ({"question_id": "q0"}, "field 'question_id' is 'q0', as in line 1"),
    ],
)
def test_lines_that_will_not_do(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    some = lines()
    some[2] = {name: value for name, value in (some[2] | change).items() if value is not ...}
    file = write(tmp_path, some)
    with pytest.raises(InputError, match=re.escape(f"{file}, line 3: {told}")):
        read_labels(file, label="model")


def test_files_that_will_not_do(tmp_path: Path) -> None:
    file = write(tmp_path, lines())
    with pytest.raises(InputError, match=r"line 1: field 'labels_logprob' is null"):
        read_labels(file, label="logprob")
    with pytest.raises(InputError, match="label is 'human'; allowed are model, logprob, gold"):
        read_labels(file, label="human")
    file.write_text(file.read_text()[:-30])
    with pytest.raises(InputError, match=r"line 12: not JSON"):
        read_labels(file, label="model")
    write(tmp_path, [])
    with pytest.raises(InputError, match=r"labels\.jsonl is empty"):
        read_labels(file, label="model")
    write(tmp_path, [line | {"labels": [2] * len(line["rewrites"])} for line in lines()])
    with pytest.raises(InputError, match="in none of the 12 questions do two rewrites differ"):
        read_labels(file, label="model")
    with pytest.raises(InputError, match=r"where there is no labels\.jsonl"):
        locate_labels(str(tmp_path / "nowhere"))


def test_jobs_that_will_not_do(tmp_path: Path) -> None:
    settings = made(tmp_path)
    flat = [line | {"labels": [2] * len(line["rewrites"])} for line in lines()[1:]]
    write(tmp_path / "labels", [lines()[0], *flat])
    with pytest.raises(InputError, match=r"in none of the .* questions do two rewrites differ"):
        settings.execute(tmp_path / "work")
    with pytest.raises(InputError, match=r"give --config\.labels=DIRECTORY"):
        dataclasses.replace(settings, labels="").execute(tmp_path / "work")
    assert not (tmp_path / "work").exists()
    with pytest.raises(InputError, match=r"holds no ranker\.jsonl"):
        read_table(tmp_path)
    wrong: tuple[Any, ...] = (
        {"label": "human"}, {"held_out": 0.0}, {"held_out": NAN}, {"ndcg_gain": "log"},
        {"ndcg_k": -1}, {"head_seed": -1},
    )  # fmt: skip
    for change in wrong:
        with pytest.raises(InputError, match=next(iter(change))):
            dataclasses.replace(settings, **change)
