"""ARS-RAG's measures and figures from reward tables and choices that are known."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from jaxrag.configs.papers.claims import CLAIMS
from jaxrag.reproduction import rewrite_figures as figures
from jaxrag.reproduction.claims import FigureClaim, compare_points
from jaxrag.reproduction.measures import JOB, Results
from jaxrag.reproduction.printed.tables import PrintedRow
from tests.methods.ars.bandit import small_table
from tests.reproduction.small_runs import RIGHT, WRONG, write_run

# K = 1, 2, 3 of four test questions: accuracies 1/4, 3/4 and 2/4
CORRECT = np.array([[1, 1, 0], [0, 1, 1], [0, 1, 0], [0, 0, 1]], float)


def table(path: Path, *, f1: float = 0.0) -> Path:
    """One training question, then those of `CORRECT`; ``f1`` as of choices that share words."""
    rows = np.vstack([[0, 0, 1], CORRECT])
    lines = small_table.lines_of(rows, 1)
    for line in lines:
        line["f1"] = [max(value, f1) for value in line["f1"]]
    small_table.settle(path, np.ones((5, 4), np.float32), lines)
    return path


def curves(path: Path, chosen: dict[str, list[list[int]]]) -> Path:
    """A bandit's curves: by scheme K of the test questions, a list for each seed."""
    path.mkdir()
    lines = [
        {
            "training": f"{scheme}/{seed}",
            "scheme": scheme,
            "policy": "NeuralUCB",
            "train": [0.5 + seed, 1.0 + seed],
            "test": [0.25, 0.75],
            "chosen": ks,
        }
        for scheme, seeds in chosen.items()
        for seed, ks in enumerate(seeds)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "curves.jsonl").write_text(text)
    return path


def penalised(tmp_path: Path, penalty: float) -> Results:
    chosen = {"weighted": [[3, 3, 3, 3]], "lambda 0.01": [[1, 2, 1, 3], [2, 2, 2, 2]]}
    made = {JOB: curves(tmp_path / "bandit", chosen), figures.REWARDS: table(tmp_path / "t")}
    row = PrintedRow("m", "M", None, None, None, {}, {"penalty_lambda": penalty}, {}, {})
    return Results(made, row)


def test_best_fixed_k(tmp_path: Path) -> None:
    found = figures.best_fixed_k(Results({JOB: table(tmp_path / "t")})).interval
    assert found.mean == 2 and found.n == 4 and 1 <= found.low <= 2 <= found.high <= 3


def test_accuracy_and_k_under_a_penalty(tmp_path: Path) -> None:
    results = penalised(tmp_path, 0.01)
    accuracy = figures.under_penalty("correct")(results)
    # seed 0: 1, 1, 0, 1; seed 1: 1, 1, 1, 0; the means are 1, 1, 1/2, 1/2
    assert list(accuracy.values.values()) == [1, 1, 0.5, 0.5]
    assert accuracy.interval.mean == pytest.approx(0.75)
    kept = figures.under_penalty("k")(results)
    assert list(kept.values.values()) == [1.5, 2, 1.5, 2.5] and kept.interval.mean == 1.875
    assert list(kept.values) == ["q1", "q2", "q3", "q4"]


def test_a_constant_k_has_no_interval_of_a_share(tmp_path: Path) -> None:
    made = {
        JOB: curves(tmp_path / "b", {"lambda 0": [[3, 3, 3, 3]]}),
        figures.REWARDS: table(tmp_path / "t"),
    }
    row = PrintedRow("m", "M", None, None, None, {}, {"penalty_lambda": 0}, {}, {})
    found = figures.under_penalty("k")(Results(made, row)).interval
    assert found == (3, 3, 3, 4)


def run_of(path: Path, right: list[list[int]], *, prediction: str = WRONG) -> Path:
    """Records of answers by K, right where the lists have 1, and of one prediction."""
    answers = ([RIGHT if hit else WRONG for hit in row] for row in right)
    return write_run(path, ({"prediction": prediction, "trace": {"answers": a}} for a in answers))


def test_strategies_over_k(tmp_path: Path) -> None:
    jobs = {
        JOB: table(tmp_path / "ranked", f1=0.5),
        "generated": table(tmp_path / "generated", f1=0.5),
        "worst": run_of(tmp_path / "worst", [[0, 0, 1], [0, 1, 1]]),
        "random 0": run_of(tmp_path / "random0", [[0, 0, 0], [1, 1, 1]]),
        "random 1": run_of(tmp_path / "random1", [[1, 0, 1], [1, 0, 1]]),
        "rag": run_of(tmp_path / "rag", [[0], [0]]),
        "ars": run_of(tmp_path / "ars", [[0], [0]], prediction=RIGHT),
    }
    (picture,) = figures.strategies({(0, "paper-boolq"): Results(jobs)})
    numbers = picture.numbers["boolq"]  # pyright: ignore
    assert numbers.pop("score") == "accuracy %"
    means = {
        name: [point["mean"] for point in (found if isinstance(found, list) else [found])]
        for name, found in numbers.items()
    }
    assert means == {
        "Top-K": [0.25, 0.75, 0.5],
        "Worse-K": [0.0, 0.5, 1.0],
        "Random-K": [0.75, 0.25, 0.75],  # of 1/2, 1/2, 1/2 and 1, 0, 1
        "Rewriter-K": [0.25, 0.75, 0.5],
        "ARS-RAG": [1.0],
        "RAG": [0.0],
    }
    # the mean of both random runs, by question; both questions have 1 with K = 3 and Worse-K
    assert numbers["Random-K"][0]["values"] == {"q0": 0.5, "q1": 1.0}
    assert numbers["Worse-K"][2]["values"] == {"q0": 1.0, "q1": 1.0}
    assert numbers["ARS-RAG"]["values"] == {"q0": 1.0, "q1": 1.0} and numbers["RAG"]["n"] == 2
    ElementTree.fromstring(picture.svg)


def test_histograms_count_the_choices_of_all_seeds(tmp_path: Path) -> None:
    results = {"boolq": penalised(tmp_path, 0.01)}
    schemes = ("weighted", "lambda 0.01")
    (picture,) = figures.kept_histograms("Kept", results, schemes=schemes)
    panels: dict[str, dict[str, Any]] = dict(picture.numbers)  # pyright: ignore
    few = {name: panel.pop("at most half") for name, panel in panels.items()}
    # K = 1 of 3 is at most half: once of 2 seeds for q1 and q3, whose K are 1, 2 and 1, 2
    assert few["boolq, weighted"]["values"] == {"q1": 0, "q2": 0, "q3": 0, "q4": 0}
    assert few["boolq, lambda 0.01"]["values"] == {"q1": 0.5, "q2": 0, "q3": 0.5, "q4": 0}
    assert few["boolq, lambda 0.01"]["mean"] == 0.25 and few["boolq, lambda 0.01"]["n"] == 4
    assert panels == {
        "boolq, weighted": {"counts": [0, 0, 4], "mean": 3.0},
        "boolq, lambda 0.01": {"counts": [2, 5, 1], "mean": 1.875},
    }
    ElementTree.fromstring(picture.svg)


def test_rewards_by_epoch_have_the_standard_deviation_of_seeds(tmp_path: Path) -> None:
    chosen = {"weighted": [[1] * 4, [2] * 4], "lambda 0": [[1] * 4]}
    whole = curves(tmp_path / "whole", {"weighted": [[1] * 4]})
    results = Results({JOB: curves(tmp_path / "bandit", chosen), figures.WHOLE: whole})
    (picture,) = figures.rewards_by_epoch("Rewards", {"boolq": results})
    # seeds 0 and 1: (0.5, 1.5) and (1, 2), whose deviation is sqrt(1/2); the test part is equal
    numbers = picture.numbers["boolq"]  # pyright: ignore
    assert numbers["train"]["mean"] == [1.0, 1.5]
    assert numbers["train"]["std"] == pytest.approx([0.5**0.5] * 2)
    assert numbers["test"] == {"mean": [0.25, 0.75], "std": [0.0, 0.0]}
    assert numbers["train, whole Z"]["mean"] == [0.5, 1.0]
    assert "boolq, 2 and 1 seeds" in picture.svg and "training, whole Z" in picture.svg
    first, last = numbers["train, first and last"]
    assert first["values"] == {"0": 0.5, "1": 1.5} and last["values"] == {"0": 1.0, "1": 2.0}
    # 1 +- 12.706 (Student, 1 degree of freedom) * sqrt(1/2) / sqrt(2)
    assert (first["mean"], first["high"]) == pytest.approx((1.0, 7.353), abs=1e-3)
    ElementTree.fromstring(picture.svg)


def claim_of(name: str) -> FigureClaim:
    claim = next(claim for claim in CLAIMS if claim.id == name)
    assert isinstance(claim, FigureClaim)
    return claim


def test_the_claim_on_small_k_is_tied_to_the_histograms(tmp_path: Path) -> None:
    """Three seeds: K = 1 of 3 in 5 of 12 choices; 41.7 - 50."""
    chosen = {"weighted": [[1, 1, 3, 3], [1, 3, 3, 3], [1, 3, 3, 1]]}
    jobs = {JOB: curves(tmp_path / "bandit", chosen), figures.REWARDS: table(tmp_path / "t")}
    (picture,) = figures.kept_histograms("Kept", {"boolq": Results(jobs)})
    (one,) = compare_points(claim_of("ars/small-k"), {"ars/figure6": picture.numbers})
    assert one.ours is not None and one.ours.mean == pytest.approx(100 * 5 / 12 - 50)
    assert one.subject == "boolq, at most half, against 50" and one.paired and one.ours.n == 4


def test_exactly_half_of_the_rewrites_is_at_most_half(tmp_path: Path) -> None:
    """Of 4 rewrites K = 2 counts, and K = 3 does not."""
    rows = np.zeros((5, 4))
    lines = small_table.lines_of(rows, 1)
    small_table.settle(tmp_path / "t", np.ones((5, 4), np.float32), lines, arms=4)
    jobs = {
        JOB: curves(tmp_path / "bandit", {"weighted": [[1, 2, 3, 4]]}),
        figures.REWARDS: tmp_path / "t",
    }
    (picture,) = figures.kept_histograms("Kept", {"boolq": Results(jobs)})
    panel: Any = picture.numbers["boolq"]  # pyright: ignore
    assert panel["at most half"]["values"] == {"q1": 1, "q2": 1, "q3": 0, "q4": 0}


def test_the_claim_on_rewards_is_tied_to_their_curves(tmp_path: Path) -> None:
    """The test part of every seed is 0.25, then 0.75: the same difference for both seeds."""
    results = Results({JOB: curves(tmp_path / "two", {"weighted": [[1] * 4, [2] * 4]})})
    (picture,) = figures.rewards_by_epoch("Rewards", {"boolq": results})
    claim = claim_of("ars/reward-rises")
    (one,) = compare_points(claim, {"ars/figure5": picture.numbers})
    assert one.ours == (0.5, 0.5, 0.5, 2) and one.unit == "reward"
    assert one.verdict == "replicated" and one.paired and not one.once
    single = Results({JOB: curves(tmp_path / "one", {"weighted": [[1] * 4]})})
    (picture,) = figures.rewards_by_epoch("Rewards", {"boolq": single})
    (one,) = compare_points(claim, {"ars/figure5": picture.numbers})
    assert one.once and one.verdict == "undecided"
