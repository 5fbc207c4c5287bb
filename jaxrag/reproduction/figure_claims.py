"""Claims of the papers about figures, which print no numbers, with verdicts from our records.

A claim compares points of drawn series, each a mean with its 95 % interval. Where the record of a
figure holds the values of single questions (or of seeds), they are compared in pairs. Elsewhere the
difference of two points is that of independent means: its interval is usually too wide where both
have the same questions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxrag.evaluation.significance import Interval, interval, normal_p, seed_interval
from jaxrag.reproduction.claims import Comparison, adjusted, unpaired


class At(NamedTuple):
    """A point of a series: its first or last, one by its number from 1, or a bar."""

    series: str
    at: Literal["first", "last", "only"] | int = "last"

    @property
    def label(self) -> str:
        """The point's name in tables."""
        if self.at == "only":
            return self.series
        where = f"point {self.at}" if isinstance(self.at, int) else f"{self.at} point"
        return f"{self.series}, {where}"

    def of(self, panel: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The point in the record of a panel; None if its series is not there."""
        points: Any = panel.get(self.series)
        if not points or self.at == "only":
            return points or None
        number = self.at - 1 if isinstance(self.at, int) else {"first": 0, "last": -1}[self.at]
        return points[number]


@dataclasses.dataclass(frozen=True)
class FigureClaim:
    """A statement of a paper about a figure, in every panel that shows the named series.

    Attributes:
      id: such as "dtr/gain-grows".
      text: the claim in our words.
      source: where the paper makes it.
      figure: the figure's id.
      ours, theirs: the point that is higher, and the one that it is compared with; None is
        ``bound``.
      lower: whether ``ours`` is lower.
      factor: factor of ``theirs``: 0.9 tests whether ``ours`` exceeds 0.9 times ``theirs``.
      picture: name of the picture, "" for a figure of one.
      shares: whether the means are shares from 0 to 1, and are shown in percent.
      unit: of the difference that is shown. Values of questions are shares if it is "percent".
      bound: without ``theirs``: a number in ``unit``.
      over_seeds: whether a point's values are those of seeds, not of questions. Their interval is
        Student's; a single seed decides nothing.
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
    unit: str = "percent"
    bound: float = 0.0
    over_seeds: bool = False


def compare_points(claim: FigureClaim, pictures: Mapping[str, Any]) -> list[Comparison]:
    """The comparisons of a claim, one a panel.

    Args:
      claim: the claim.
      pictures: of the figure's record, by name: panels with series of points.

    Raises:
      KeyError: the record has no such picture.
    """
    comparisons = []
    for panel, series in pictures[claim.picture or claim.figure].items():
        against = f"{claim.bound:g}" if claim.theirs is None else claim.theirs.label
        against = against if claim.factor == 1 else f"{claim.factor:g} x {against}"
        subject = f"{panel}, {claim.ours.label}, against {against}"
        ours = claim.ours.of(series)
        theirs = claim.theirs.of(series) if claim.theirs else _bound(claim)
        comparisons.append(_compare(claim, subject, ours, theirs))
    return adjusted(comparisons)


def _bound(claim: FigureClaim) -> dict[str, float]:
    """The claim's bound as a point of the figure."""
    value = claim.bound / (100 if claim.shares else 1)
    return {"mean": value, "low": value, "high": value}


def _compare(
    claim: FigureClaim,
    subject: str,
    ours: Mapping[str, Any] | None,
    theirs: Mapping[str, Any] | None,
) -> Comparison:
    if ours is None or theirs is None:
        return Comparison(subject, claim.unit, None, None, None)
    paired = claim.theirs is None or ("values" in ours and "values" in theirs)
    difference = _difference(claim, ours, theirs)
    once = difference.n < 2 if claim.over_seeds else "values" not in ours
    once = once and difference.low == difference.high
    p = math.nan if once else normal_p(*difference[:3])
    return Comparison(subject, claim.unit, None, difference, None, once, paired or once, p)


def _difference(claim: FigureClaim, ours: Any, theirs: Any) -> Interval:
    """``ours`` - factor * ``theirs`` in the claim's unit, higher is better."""
    sign = -1 if claim.lower else 1
    if "values" in ours and "values" in theirs:  # by question, or by seed
        both = [(value, theirs["values"].get(name)) for name, value in ours["values"].items()]
        pairs = np.array([pair for pair in both if pair[1] is not None], np.float64)
        scale = sign * (100 if claim.unit == "percent" else 1)
        each = scale * (pairs[:, 0] - claim.factor * pairs[:, 1])
        return seed_interval(each) if claim.over_seeds else interval(each)
    scale = sign * (100 if claim.shares else 1)
    mine, other = _interval(ours, scale), _interval(theirs, scale * claim.factor)
    return unpaired(mine, other)._replace(n=mine.n)


def _interval(point: Mapping[str, Any], scale: float) -> Interval:
    mean, *ends = (scale * point[name] for name in ("mean", "low", "high"))
    return Interval(mean, min(ends), max(ends), int(point.get("n", 0)))
