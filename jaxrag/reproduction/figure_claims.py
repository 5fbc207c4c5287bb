"""Claims of the papers about figures, which print no numbers, with verdicts from our records.

A claim compares points of drawn series, each a mean with its 95 % interval. Where the record of a
figure holds the values of single questions, they are compared in pairs. Elsewhere the difference of
two points is that of independent means: its interval is usually too wide where both have the same
questions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxrag.evaluation.significance import Interval, interval
from jaxrag.reproduction.claims import Comparison, unpaired


class At(NamedTuple):
    """A point of a series: its first or last, or the only one of a bar."""

    series: str
    at: Literal["first", "last", "only"] = "last"

    @property
    def label(self) -> str:
        """For tables."""
        return self.series if self.at == "only" else f"{self.series}, {self.at} point"


@dataclasses.dataclass(frozen=True)
class FigureClaim:
    """A statement of a paper about a figure, in every panel that shows the named series.

    Attributes:
      id: such as "dtr/gain-grows".
      text: the claim in our words.
      source: where the paper makes it.
      figure: the figure's id.
      ours, theirs: the point that is higher, and the one that it is compared with; None is 0.
      lower: whether ``ours`` is lower.
      factor: factor of ``theirs``: 0.9 tests whether ``ours`` exceeds 0.9 times ``theirs``.
      picture: name of the picture, "" for a figure of one.
      shares: whether the means are shares from 0 to 1, and are shown in percent.
    """

    id: str
    text: str
    source: str
    figure: str
    ours: At
    theirs: At | None
    lower: bool = False
    factor: float = 1.0
    picture: str = ""
    shares: bool = False


def compare_points(claim: FigureClaim, pictures: Mapping[str, Any]) -> list[Comparison]:
    """The comparisons of a claim, one a panel.

    Args:
      claim: the claim.
      pictures: of the figure's record, by name: panels with series of points.

    Raises:
      KeyError: the record has no such picture.
    """
    found = []
    for panel, shown in pictures[claim.picture or claim.figure].items():
        against = "0" if claim.theirs is None else claim.theirs.label
        against = against if claim.factor == 1 else f"{claim.factor:g} x {against}"
        subject = f"{panel}, {claim.ours.label}, against {against}"
        points = [_point(shown, at) if at else _ZERO for at in (claim.ours, claim.theirs)]
        difference = _difference(claim, *points) if all(points) else None
        found.append(Comparison(subject, "percent", None, difference, None))
    return found


_ZERO: Mapping[str, Any] = {"mean": 0.0, "low": 0.0, "high": 0.0}


def _point(series: Mapping[str, Any], where: At) -> Mapping[str, Any] | None:
    """A point of a record; None if its series is not there."""
    points: Any = series.get(where.series)
    if not points:
        return None
    return points if where.at == "only" else points[{"first": 0, "last": -1}[where.at]]


def _difference(claim: FigureClaim, ours: Any, theirs: Any) -> Interval:
    """``ours`` - factor * ``theirs`` in percent, higher is better."""
    sign = -1 if claim.lower else 1
    if "values" in ours and "values" in theirs:  # shares, by question
        both = [(one, theirs["values"].get(name)) for name, one in ours["values"].items()]
        pairs = np.array([pair for pair in both if pair[1] is not None], np.float64)
        return interval(100 * sign * (pairs[:, 0] - claim.factor * pairs[:, 1]))
    scale = sign * (100 if claim.shares else 1)
    mine, other = _interval(ours, scale), _interval(theirs, scale * claim.factor)
    return unpaired(mine, other)._replace(n=mine.n)


def _interval(point: Mapping[str, Any], scale: float) -> Interval:
    mean, *ends = (scale * point[name] for name in ("mean", "low", "high"))
    return Interval(mean, min(ends), max(ends), int(point.get("n", 0)))
