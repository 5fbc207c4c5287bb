"""Angles, ranks and positions of gold passages in a plane, worked by hand."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxrag.configs import pairs
from jaxrag.core import jsonl
from jaxrag.evaluation.records import RunRecords
from jaxrag.methods import gold_geometry
from jaxrag.methods.gold_geometry import POINTS, GoldGeometry
from jaxrag.reproduction import gold_figures
from jaxrag.reproduction.measures import Results
from jaxrag.types import InputError, Passage, Ranking

TEXTS = {"Q?": (1.0, 0.0), "written": (0.0, 1.0)}
ROWS = np.array([(1, 0), (0, 1), (1, 1), (-1, 0)], np.float32)  # p0 .. p3
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)


class Plane:
    """An index of four passages in a plane."""

    passages: Any = SimpleNamespace(
        rows_of=lambda names: {name: int(name[1:]) for name in names if name < "p4"},
        get=lambda rows: [Passage(f"p{row}", "", "") for row in rows],
    )

    def embed(self, texts: list[str]) -> np.ndarray:
        return np.array([TEXTS[text] for text in texts], np.float32)

    def search(self, vectors: np.ndarray, k: int) -> list[Ranking]:
        scores = vectors @ ROWS.T
        orders = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return [
            Ranking(tuple(o.tolist()), tuple(s[o].tolist()))
            for o, s in zip(orders, scores, strict=True)
        ]

    def vectors(self, rows: tuple[int, ...]) -> np.ndarray:
        return ROWS[list(rows)]


def records(*gold: str) -> RunRecords:
    one = {"question_id": "q", "question": "Q?", "prediction": "written", "gold_passages": gold}
    return RunRecords(Path("run"), {}, [], (one,), {}, True)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> GoldGeometry:
    monkeypatch.setattr(gold_geometry, "open_index", lambda run, cache: Plane())
    made: Any = pairs.get_config("gold_geometry@tiny")
    return GoldGeometry(made.run, depth=2, n=1)


def test_angles_and_ranks(
    job: GoldGeometry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = job.lines(records("p2", "p4", "p3"), tmp_path)  # there is no p4
    # question east, pseudo-context north: 90 degrees; p2 lies between them, p3 west
    assert line["theta0"] == pytest.approx(math.pi / 2, abs=1e-6)
    between, west = line["gold"]
    assert (between["theta1"], between["theta2"]) == pytest.approx((math.pi / 4, math.pi / 4))
    assert (west["theta1"], west["theta2"]) == pytest.approx((math.pi, math.pi / 2))
    # by the question: p0, p2, p1, p3; west is beyond the depth of 2
    assert between["rank"] == 1 and west["rank"] is None
    # mean angles 5 pi / 8 and 3 pi / 8: alpha = 3 / 8
    theta0, alpha = gold_geometry.weights([line])
    assert theta0 == pytest.approx([math.pi / 2]) and alpha == pytest.approx([3 / 8])
    # one cosine, of 0.707: a histogram has two bins at least
    monkeypatch.setattr(gold_figures, "read_geometry", lambda outputs: [{"gold": [between]}])
    (picture,) = gold_figures.similarities("title", {"set": Results({})})
    assert picture.numbers["set"]["counts"] == [1, 0]


def test_positions_keep_distances_in_a_plane(job: GoldGeometry, tmp_path: Path) -> None:
    job.lines(records("p3"), tmp_path)
    points = {one["cloud"]: one for one in jsonl.read(tmp_path / POINTS)}
    # from the question (1, 0): p0 is at 0, p1 (found by the pseudo-context) at sqrt 2, p3 at 2
    assert points["query"]["r"] == 0
    assert points["context"]["r"] == pytest.approx(math.sqrt(2))
    assert points["gold"]["r"] == pytest.approx(2)
    for one in points.values():  # two components hold all of a plane
        assert math.hypot(one["x"], one["y"]) == pytest.approx(one["r"], abs=1e-6)


def test_without_gold_passages(job: GoldGeometry, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has known gold passages"):
        job.lines(records(), tmp_path)
