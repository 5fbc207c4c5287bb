"""Measures of trained retrievers, and curves of accuracy along a training."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.significance import crossed_interval
from jaxrag.methods.r3.training import SCORED
from jaxrag.reproduction.bars import bars
from jaxrag.reproduction.claims import At, FigureClaim, compare_points
from jaxrag.reproduction.measures import JOB, Results
from jaxrag.reproduction.retriever_figures import (
    accuracy_curves,
    any_of,
    gain,
    of_retriever,
    passages_scored,
)
from tests.evaluation.fabricate import ENVIRONMENT
from tests.reproduction.test_cells import write


def results_of(path: Path, **runs: list[int]) -> Results:
    found = {name: write(path / name, right).directories[JOB] for name, right in runs.items()}
    return Results(found)


def test_any_retriever_is_a_union(tmp_path: Path) -> None:
    results = results_of(tmp_path, a=[1, 0, 0, 1], b=[0, 1, 0, 1])
    found = any_of("contains", ["a", "b"])(results)
    assert found.interval.mean == 0.75 and found.interval.n == 4
    assert found.values == {"q0": 1.0, "q1": 1.0, "q2": 0.0, "q3": 1.0}
    # without a metric in one of the runs there is no union
    assert any_of("ir_accuracy", ["a", "b"])(results).interval.n == 0


def test_gain_is_paired(tmp_path: Path) -> None:
    results = results_of(tmp_path, after=[1, 1, 0, 1], before=[1, 0, 0, 0])
    results.directories = {JOB: results.directories["after"], **results.directories}  # type: ignore[assignment]
    found = gain("before")(results)
    assert found.interval.mean == 0.5 and found.values == {"q0": 0, "q1": 1, "q2": 0, "q3": 1}


def test_scored_passages_are_averaged_over_questions(tmp_path: Path) -> None:
    (tmp_path / SCORED).write_text(json.dumps({"a": 3, "b": 0, "c": 9}))
    found = passages_scored("training")(Results({"training": tmp_path}))
    assert found.interval.mean == 4 and found.interval.n == 3
    assert found.interval.low < 4 < found.interval.high


def training_at(path: Path, accuracy: dict[int, list[float]], *data: str) -> Path:
    config = {"training": {"evaluation_limit": 0}, **({"data": data} if data else {})}
    with RunDirectory.open(path, config, environment=ENVIRONMENT):
        pass
    lines = [{"step": step, "each": {"rag_accuracy": some}} for step, some in accuracy.items()]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_curves_are_over_the_share_of_the_training(tmp_path: Path) -> None:
    long = training_at(tmp_path / "long", {0: [0, 0], 5: [0, 1], 20: [1, 1]})
    short = training_at(tmp_path / "short", {0: [0, 0], 4: [1, 0]})
    results = {"nq": Results({"long": long, "short": short})}
    [picture] = accuracy_curves("A test", results, trainings=["long", "short"])
    assert "<svg" in picture.svg and "nq" in picture.svg
    numbers: dict = picture.numbers["nq"]  # type: ignore[index,type-arg]
    shown = {name: [(p["progress"], p["mean"]) for p in some] for name, some in numbers.items()}
    assert shown == {"long": [(0, 0), (25, 50), (100, 100)], "short": [(0, 0), (100, 50)]}
    assert numbers["long"][1]["n"] == 2
    np.testing.assert_allclose(numbers["long"][2]["high"], 100)
    # values of questions at both ends only
    assert numbers["long"][0]["values"] == {"0": 0, "1": 0} and "values" not in numbers["long"][1]
    assert numbers["short"][1]["values"] == {"0": 1, "1": 0}


def test_a_curve_of_several_seeds_is_their_mean(tmp_path: Path) -> None:
    """The second seed has one evaluation less, and no value of one question."""
    first = training_at(tmp_path / "a", {0: [0, 1, 1], 5: [1, 1, 0], 10: [1, 1, 1]})
    second = training_at(tmp_path / "b", {0: [0, 0, np.nan], 6: [1, 0, 1]})
    results = {"nq": Results({"one": first}, None, [{"one": second}])}
    [picture] = accuracy_curves("A test", results, trainings=["one"])
    start, end = picture.numbers["nq"]["one"]  # type: ignore[index]
    assert start["values"] == {"0": 0, "1": 0.5} and start["seeds"] == [2 / 3, 0]
    assert (start["mean"], start["n"], end["progress"]) == (25, 2, 50)
    assert end["values"] == {"0": 1, "1": 0.5, "2": 0.5}
    mean, low, high, _ = crossed_interval(np.array([[1.0, 1, 0], [1, 0, 1]]))
    assert (end["mean"], end["low"], end["high"]) == (100 * mean, 100 * low, 100 * high)


def test_ends_of_curves_are_compared_in_pairs(tmp_path: Path) -> None:
    """Differences at the end: 0, 1, 1, 1, and a question that has no value on one side."""
    ours = training_at(tmp_path / "a", {0: [0] * 5, 5: [1, 1, 1, 1, 1]}, "train", "test")
    theirs = training_at(tmp_path / "b", {0: [0] * 5, 5: [1, 0, 0, 0, np.nan]}, "other", "test")
    results = {"nq": Results({"a": ours, "b": theirs})}
    [picture] = accuracy_curves("A test", results, trainings=["a", "b"])
    claim = FigureClaim("r3/x", "A claim.", "section 1", "r3/figure9", At("a"), At("b"))
    (one,) = compare_points(claim, {"r3/figure9": picture.numbers})
    assert one.ours is not None and one.ours.mean == 75 and one.ours.n == 4 and one.paired


@pytest.mark.parametrize(
    ("values", "data"), [([1, 0, 0], ("train", "test")), ([1, 0], ("train", "other"))]
)
def test_other_questions_are_not_paired(
    tmp_path: Path, values: list[float], data: tuple[str, ...]
) -> None:
    """More questions, or those of another data set."""
    ours = training_at(tmp_path / "a", {0: [0, 0], 5: [1, 1]}, "train", "test")
    theirs = training_at(tmp_path / "b", {0: [0] * len(values), 5: values}, *data)
    results = {"nq": Results({"a": ours, "b": theirs})}
    [picture] = accuracy_curves("A test", results, trainings=["a", "b"])
    assert "values" not in str(picture.numbers)
    claim = FigureClaim("r3/x", "A claim.", "section 1", "r3/figure9", At("a"), At("b"))
    (one,) = compare_points(claim, {"r3/figure9": picture.numbers})
    assert one.ours is not None and not one.paired


def test_a_figure_of_a_training_without_evaluations_is_refused(tmp_path: Path) -> None:
    path = training_at(tmp_path / "none", {})
    with pytest.raises(Exception, match="has no step yet"):
        accuracy_curves("A test", {"nq": Results({"one": path})}, trainings=["one"])


def write_rankings(directory: Path, number: int, found: dict[str, dict[str, float]]) -> None:
    directory.mkdir(exist_ok=True)
    lines = [{"question_id": name, "metrics": metrics} for name, metrics in found.items()]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / f"rankings-{number}.jsonl").write_text(text)


def test_means_and_values_of_questions(tmp_path: Path) -> None:
    """Of four questions the first retriever answers two, the second one of three that count."""
    hit, miss = {"answer@1": 1.0, "mrr@5": 0.5}, {"answer@1": 0.0, "mrr@5": 0.1}
    write_rankings(tmp_path / "nq", 0, {"a": hit, "b": hit, "c": miss, "d": miss})
    write_rankings(tmp_path / "nq", 1, {"a": miss, "b": hit, "c": miss, "d": {"mrr@5": 1.0}})
    results = {"nq": Results({JOB: tmp_path / "nq"})}
    measures = {name: of_retriever(i, "answer@1") for i, name in enumerate(("late", "full"))}
    [picture] = bars("t", results, measures=measures, y_title="answer@1, %")
    assert "n = 4, 3" in picture.svg and "nq" in picture.svg
    numbers: dict = picture.numbers["nq"]  # type: ignore[index,type-arg]
    assert numbers["late"]["mean"] == 0.5 and numbers["late"]["n"] == 4
    assert numbers["late"]["values"] == {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0}
    assert numbers["full"]["n"] == 3 and numbers["full"]["values"] == {"a": 0, "b": 1, "c": 0}
    assert 0 <= numbers["full"]["low"] < 1 / 3 < numbers["full"]["high"] <= 1
