"""Figures of bars: a measure of several series, a group for each data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxrag.evaluation.report import plots
from jaxrag.evaluation.significance import Interval
from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.printed.measured import Measured
from jaxrag.reproduction.tables import Picture


def bars(
    title: str,
    results: Mapping[str, Results],
    *,
    measures: Mapping[str, Callable[[Results], Measured | None]],
    y_title: str,
    legend: Mapping[Any, str] | None = None,
    percent: bool = True,
) -> list[Picture]:
    """Draws the measures of each data set by their names, or those in ``legend``.

    Series whose measure is None were not made. Shares are drawn in ``percent``.
    """
    found = {
        data: {name: one for name, measure in measures.items() if (one := measure(outputs))}
        for data, outputs in results.items()
    }
    factor = 100 if percent else 1
    drawn = {
        data: {
            name: Interval(*(factor * value for value in one.interval[:3]), n=one.interval.n)
            for name, one in series.items()
        }
        for data, series in found.items()
    }
    names = [(legend or {}).get(name, name) for name in next(iter(found.values()))]
    svg = plots.bars(title, drawn, legend=names, y_title=y_title)
    numbers = {d: {name: _numbers(one) for name, one in s.items()} for d, s in found.items()}
    return [Picture(svg, numbers)]


def _numbers(one: Measured) -> dict[str, Any] | None:
    if not one.interval.n:
        return None
    values = {"values": one.values} if one.values else {}
    return {**one.interval._asdict(), **values, **means_of(one.seeds)}


def means_of(seeds: Sequence[Measured]) -> dict[str, Any]:
    """The means of several seeds, as shares."""
    return {"seeds": [one.interval.mean for one in seeds]} if seeds else {}
