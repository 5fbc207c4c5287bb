"""Every number that the five papers print: 1,772 values of tables and figures.

``papers/{pairs,dtr,r3,errr,ars}.json`` hold the rows of each table as printed, in the table's own
units (ERRR prints fractions, the others percent), and which of our metrics each printed one is.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple

PAPERS = ("pairs", "dtr", "r3", "errr", "ars")
AVERAGE = "average"
"""The name of a column of means over data sets."""


class PrintedRow(NamedTuple):
    """A row of a table.

    Attributes:
      method: an identifier, such as "dtr_u0.001"; ``label`` is what the paper prints.
      generator, retriever: the models; None where the row uses none, or the paper does not say.
      passages: number that the generator reads; None where it is not stated.
      values: by data set and metric; None for an empty cell. `AVERAGE` is a column of means, and
        "" stands for no data set.
      other: further settings in which rows differ: "block" of the table, "shots", "judge", ...
      questions: number of questions by data set, where the row or the paper states one.
      doubts: by "DATASET METRIC", or "" for the whole row: why a value is not certain.
      minus: number of the row that this row's differences are taken to; None without any.
    """

    method: str
    label: str
    generator: str | None
    retriever: str | None
    passages: int | None
    values: Mapping[str, Mapping[str, float | None]]
    other: Mapping[str, Any]
    questions: Mapping[str, int]
    doubts: Mapping[str, str]
    minus: int | None = None

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets without the column of means."""
        return tuple(name for name in self.values if name != AVERAGE)

    def doubt(self, dataset: str, metric: str) -> str:
        """Why a value is not certain; "" without doubt."""
        return self.doubts.get(f"{dataset} {metric}", self.doubts.get("", ""))

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(map(len, self.values.values()))


class PrintedTable(NamedTuple):
    """A table, or the values of a figure.

    Attributes:
      id, paper, name: such as "dtr/table2", "DTR" and "Table 2".
      caption: what it compares, in our words.
      units: by metric: "percent", "fraction", "points", "count", ...
      ours: our metrics by printed one, as `metric_of` reads them.
      differences: of printed differences between two rows, the metric that is compared.
    """

    id: str
    paper: str
    name: str
    caption: str
    units: Mapping[str, str]
    rows: tuple[PrintedRow, ...]
    ours: Mapping[str, str] = MappingProxyType({})
    differences: Mapping[str, str] = MappingProxyType({})

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(row.count for row in self.rows)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets of all rows, without the column of means."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.datasets))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of all rows."""
        names = (metric for row in self.rows for cells in row.values.values() for metric in cells)
        return tuple(dict.fromkeys(names))

    def metric_of(self, metric: str, dataset: str = "") -> str | None:
        """Our metric (of `metrics.COLUMNS` or `precision.NAMES`) for one printed on a data set.

        ``dataset`` is "" for questions of no printed one. None where the metric is not a mean over
        the answers of a run.
        """
        return self.ours.get(f"{dataset} {metric}", self.ours.get(metric))


@functools.cache
def printed_tables() -> Mapping[str, PrintedTable]:
    """All tables by id, in the papers' order."""
    tables = {}
    for paper in PAPERS:
        file = resources.files("jaxrag.reproduction.printed").joinpath("papers", f"{paper}.json")
        content = json.loads(file.read_text("utf-8"))
        for table in content["tables"]:
            name = f"{paper}/{table['name'].lower().replace(' ', '')}"
            tables[name] = PrintedTable(
                name,
                content["paper"],
                table["name"],
                table["caption"],
                table["units"],
                tuple(_row(row, content.get("questions", {})) for row in table["rows"]),
                content["metrics"],
                table.get("differences", {}),
            )
    return tables


def _row(row: Mapping[str, Any], questions: Mapping[str, int]) -> PrintedRow:
    """A row; ``questions`` are the paper's numbers, where the row states none."""
    doubts = dict(row.get("doubts", {})) | ({"": row["doubt"]} if "doubt" in row else {})
    stated = {name: questions[name] for name in row["values"] if name in questions}
    return PrintedRow(
        row["method"],
        row["label"],
        row["generator"],
        row["retriever"],
        row["passages"],
        row["values"],
        row.get("other", {}),
        stated | row.get("questions", {}),
        doubts,
        row.get("minus"),
    )
