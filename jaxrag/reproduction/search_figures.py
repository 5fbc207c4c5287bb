"""Figures of retrievers that search for the same questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxrag.evaluation.report.plots import bars, sheet
from jaxrag.evaluation.significance import Interval, interval
from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.tables import Picture
from jaxrag.runs.retriever_comparison import read_metric


def metric_bars(
    name: str, title: str, job: str, retrievers: Sequence[str], metric: str, y_title: str
) -> Callable[[Mapping[str, Results]], list[Picture]]:
    """Draws the mean of a metric for each retriever and data set.

    Args:
      name: of the picture.
      title: above it.
      job: a `jaxrag.runs.retriever_comparison.RetrieverComparison` of one data set.
      retrievers: names of its retrievers, in its order.
      metric: one of its metrics, from 0 to 1; shown in percent.
      y_title: of the axis.
    """

    def draw(by_dataset: Mapping[str, Results]) -> list[Picture]:
        groups: dict[str, list[Interval]] = {}
        numbers: dict[str, Any] = {}
        for dataset, results in by_dataset.items():
            groups[dataset], numbers[dataset] = [], {}
            for number, retriever in enumerate(retrievers):
                values = read_metric(results.directories[job], number, metric)
                mean, low, high, n = interval(np.array([*values.values()]))
                groups[dataset].append(Interval(100 * mean, 100 * low, 100 * high, n))
                point = {"mean": mean, "low": low, "high": high, "n": n}
                numbers[dataset][retriever] = {**point, "values": values}
        panel = bars("", groups, y_title=y_title, y=(0, 100))
        return [Picture(name, sheet(title, [panel], retrievers), numbers)]

    return draw
