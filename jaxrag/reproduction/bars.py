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
    """Draws what was measured of each data set, by name or ``legend``; shares in ``percent``."""
    factor = 100 if percent else 1
    drawn = dict[str, dict[str, Interval]]()
    numbers = dict[str, dict[str, dict[str, Any] | None]]()
    for data, outputs in results.items():
        drawn[data], numbers[data] = {}, {}
        for name, measure in measures.items():
            if (measured := measure(outputs)) is not None:
                mean, low, high, n = measured.interval
                drawn[data][name] = Interval(factor * mean, factor * low, factor * high, n)
                values = {"values": measured.values} if measured.values else {}
                point = {**measured.interval._asdict(), **values, **means_of(measured.seeds)}
                numbers[data][name] = point if n else None
    names = [(legend or {}).get(name, name) for name in next(iter(drawn.values()))]
    return [Picture(plots.bars(title, drawn, legend=names, y_title=y_title), numbers)]


def means_of(seeds: Sequence[Measured]) -> dict[str, Any]:
    """The means of several seeds, as shares."""
    return {"seeds": [seed.interval.mean for seed in seeds]} if seeds else {}
