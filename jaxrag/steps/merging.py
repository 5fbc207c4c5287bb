"""One list of passages from several searches: which passage stands where."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal, get_args

from jaxrag.steps.asking import Pool
from jaxrag.types import InputError, Ranking

Merge = Literal["fusion", "round_robin", "concatenate"]

_DAMPING = 60  # Cormack et al. (2009)


def check_merge(merge: Merge) -> None:
    """Refuses an unknown policy."""
    if merge not in get_args(Merge):
        raise InputError(f"merge is {merge!r}; allowed: {', '.join(get_args(Merge))}.")


def merged(rankings: Sequence[Ranking], merge: Merge) -> Pool:
    """The union of several rankings, best first, each passage once.

    Args:
      rankings: of the searches, the most important one first.
      merge: "concatenate" takes all of the first search, then what the second adds, and so on;
        "round_robin" the first of each search, then the second of each; "fusion" orders by the
        sum of 1 / (60 + rank) over the searches that found a passage (reciprocal rank fusion,
        Cormack et al. 2009), equal sums as "round_robin" does.

    Returns:
      Rows with the scores of that order: the sums, or else 1 / place.
    """
    turns = zip_longest(*(ranking.ids for ranking in rankings))
    in_turn = tuple(dict.fromkeys(row for turn in turns for row in turn if row is not None))
    if merge == "fusion":
        sums = dict.fromkeys(in_turn, 0.0)
        for ranking in rankings:
            for place, row in enumerate(ranking.ids, start=1):
                sums[row] += 1 / (_DAMPING + place)
        rows = tuple(sorted(in_turn, key=lambda row: -sums[row]))
        return Pool(rows, tuple(sums[row] for row in rows))
    in_line = tuple(dict.fromkeys(row for ranking in rankings for row in ranking.ids))
    rows = in_line if merge == "concatenate" else in_turn
    return Pool(rows, tuple(1 / place for place in range(1, len(rows) + 1)))
