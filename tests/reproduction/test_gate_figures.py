"""Groups and curves of gates from small runs, worked by hand."""

from pathlib import Path
from typing import Any

import pytest

from jaxrag.configs.papers.pairs import TABLES
from jaxrag.reproduction.bars import bars
from jaxrag.reproduction.gate_figures import (
    ALWAYS,
    GROUPS,
    GainOf,
    distinct,
    gain_curves,
    in_group,
    ratio_curves,
    threshold_curves,
)
from jaxrag.reproduction.measures import JOB, Results
from tests.reproduction.small_runs import RIGHT, WRONG, write_run


def write(
    path: Path,
    right: str,
    retrieve: str = "",
    u: tuple[float, ...] = (),
    aliases: tuple[str, ...] = (RIGHT,),
    dataset: str = "d",
) -> Path:
    """A run whose answers are right, and whose gate retrieves, where the texts have 1."""
    records: list[dict[str, Any]] = []
    for i, one in enumerate(right):
        text = RIGHT if one == "1" else WRONG
        trace: dict[str, Any] = {"direct": {"text": text, "u": u[i]}} if u else {}
        if retrieve:
            trace["gate"] = {"name": "g", "retrieve": retrieve[i] == "1"}
        records.append({"gold_answers": list(aliases), "prediction": text, "trace": trace})
    return write_run(path, records, dataset={"name": dataset}, language_model="SmolLM2")


@pytest.fixture
def gated(tmp_path: Path) -> Results:
    return Results(
        {
            JOB: write(tmp_path / "gated", "110100", retrieve="100011"),
            ALWAYS: write(tmp_path / "always", "011100"),
        }
    )


def test_groups(gated: Results) -> None:
    # the gate retrieves for 0, 4 and 5, of which 0 is right; it accepts 1, 2 and 3, of which 1 and
    # 3 are right; with retrieval all three are
    means = [
        in_group(group, "exact_match")(gated).interval
        for group in ("non_dq_retrieval", "dq", "dq_retrieval")
    ]
    assert [one.mean for one in means] == pytest.approx([1 / 3, 2 / 3, 1])
    assert [one.n for one in means] == [3, 3, 3]
    measures = {group: in_group(group, "exact_match") for group in GROUPS}
    (picture,) = bars("t", {"nq": gated}, measures=measures, y_title="EM, %", legend=GROUPS)
    assert "DQ-retrieval" in picture.svg
    group: Any = picture.numbers["nq"]["dq"]  # pyright: ignore
    assert group["mean"] == pytest.approx(2 / 3)
    assert group["values"] == {"q1": 1, "q2": 0, "q3": 1}


def test_the_metric_of_a_group_may_be_that_of_the_data_set(tmp_path: Path) -> None:
    # one question with two aliases, answered by one of them: mean 1 / 2, best 1
    for dataset, value in {"triviaqa": 0.5, "2wiki": 1.0}.items():
        path = write(tmp_path / dataset, "1", "0", aliases=("Lima", "Oslo"), dataset=dataset)
        measure = TABLES["pairs/table8"].lines["dq"].measures["F1"]
        assert measure(Results({JOB: path})).interval.mean == value


def test_curves_over_uncertainty(tmp_path: Path) -> None:
    u = tuple(0.1 * i for i in range(1, 13))
    direct = write(tmp_path / "direct", "111111000000", u=u)
    always = write(tmp_path / "always", "000111111100")
    results = {"nq": Results({"7B": direct, "72B": direct, "7B, retrieved": always})}
    assert distinct(results["nq"], {"7B": ["7B"], "72B": ["72B"]}) == [
        "7B"
    ]  # one directory, one curve
    (picture,) = threshold_curves("t", results, jobs=("7B", "72B"))
    assert "SmolLM2" in picture.svg and "72B" not in picture.svg
    curve: Any = picture.numbers["nq"]["7B"]  # pyright: ignore
    # the curve starts at ten questions: 6 of 10 are right, then 6 of 11 and 6 of 12
    assert [one["mean"] for one in curve] == pytest.approx([6 / 10, 6 / 11, 6 / 12])
    (picture,) = ratio_curves("t", results, jobs=("7B", "72B"))
    curve = picture.numbers["nq"]["exact_match"]["7B"]  # pyright: ignore
    assert curve[4]["mean"] == 1 and curve[-1]["mean"] == 0.5  # 50 %: six of twelve
    (picture,) = gain_curves("t", results, blocks={"": {"7B": GainOf("7B", "7B, retrieved")}})
    curve = picture.numbers["nq"]["7B"]  # pyright: ignore
    # of the first ten: three lost (0 to 2), four won (6 to 9): (4 - 3) / 10
    assert [one["mean"] for one in curve] == pytest.approx([1 / 10, 1 / 11, 1 / 12])
    assert "SmolLM2" in picture.svg and picture.svg.startswith("<svg")
    # the last point has the values of all twelve
    gains = [-1] * 3 + [0] * 3 + [1] * 4 + [0] * 2
    assert curve[-1]["values"] == {f"q{i}": gain for i, gain in enumerate(gains)}
    assert all("values" not in point for point in curve[:-1])


def test_series_that_were_not_made_are_left_out(tmp_path: Path) -> None:
    u = tuple(0.1 * i for i in range(1, 13))
    runs = {"7B": write(tmp_path / "direct", "111111000000", u=u)}
    runs["HyDE"] = write(tmp_path / "hyde", "000111111100")
    results = {"nq": Results(runs)}
    for curves in (threshold_curves, ratio_curves):
        (picture,) = curves("t", results, jobs=("72B", "7B"))
        assert "72B" not in picture.svg
    blocks = {
        "by size": {"7B": GainOf("7B", "7B, retrieved")},
        "by retrieval": {"Q2D": GainOf("7B", "Q2D"), "HyDE": GainOf("7B", "HyDE")},
    }
    (picture,) = gain_curves("t", results, blocks=blocks)
    assert picture.suffix == "-by-retrieval" and set(picture.numbers["nq"]) == {"HyDE"}  # pyright: ignore
    assert "HyDE" in picture.svg and "Q2D" not in picture.svg and "t, by retrieval" in picture.svg
