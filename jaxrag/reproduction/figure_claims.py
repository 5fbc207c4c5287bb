"""Claims of the papers about figures, which print no numbers, with verdicts from our records.

A claim compares points of drawn series, each a mean with its 95 % interval. The records of figures
hold no values of single questions, so the difference of two points is that of independent means:
its interval is usually too wide where both have the same questions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from jaxrag.evaluation.significance import Interval
from jaxrag.reproduction.claims import Comparison, unpaired

_ZERO = Interval(0.0, 0.0, 0.0, 0)


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
        subject = f"{panel}, {claim.ours.label}, against {against}"
        ours = _point(claim, shown, claim.ours)
        theirs = _ZERO if claim.theirs is None else _point(claim, shown, claim.theirs)
        difference = None
        if ours is not None and theirs is not None:
            difference = unpaired(ours, theirs)._replace(n=ours.n)
        found.append(Comparison(subject, "percent", None, difference, None))
    return found


def _point(claim: FigureClaim, series: Mapping[str, Any], where: At) -> Interval | None:
    """A point with its interval in percent, higher is better; None if its series is not there."""
    points: Any = series.get(where.series)
    if not points:
        return None
    one = points if where.at == "only" else points[{"first": 0, "last": -1}[where.at]]
    factor = (100 if claim.shares else 1) * (-1 if claim.lower else 1)
    mean, *ends = (factor * one[name] for name in ("mean", "low", "high"))
    return Interval(mean, min(ends), max(ends), int(one.get("n", 0)))
