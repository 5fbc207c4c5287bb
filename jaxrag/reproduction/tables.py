"""Declarations of how the tables and figures of the papers are made; they are in configs/papers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from jaxrag.reproduction.measures import Measure, Results
from jaxrag.reproduction.printed.comparison import Column
from jaxrag.reproduction.printed.tables import AVERAGE, PrintedRow, PrintedTable
from jaxrag.runs.job import Job
from jaxrag.steps.gates import RATIO
from jaxrag.types import InputError

Scale = Literal["tiny", "small", "paper"]
"""``tiny``: 3 countries of the factbook, for tests; ``small``: models for a laptop on folders of
questions or the factbook; ``paper``: the paper's data, models and settings."""
SCALES: tuple[Scale, ...] = get_args(Scale)


class Setting(NamedTuple):
    """The scale and questions for which a job of a row is made.

    Attributes:
      directory: of another job whose results this one needs, which is executed first.
      ratio: of the questions that gates shall retrieve for, instead of their thresholds: "printed"
        for what the row prints, or a number; "" keeps the thresholds.
    """

    scale: Scale
    dataset: str  # of the paper
    data: str  # the questions that stand for it at this scale: DATA of METHOD@DATA in the configs
    directory: Callable[[Job], Path]
    sizes: Scale  # the scale of which trainings have their steps
    ratio: str = ""
    seed: int = 0  # number of the trainings' seed, from 0

    def threshold(self, row: PrintedRow | None, metric: str, own: float) -> float | str:
        """A gate's threshold: ``own``, or the ratio that a row prints; InputError if none."""
        if not self.ratio:
            return own
        if self.ratio != "printed":
            return f"{RATIO}{float(self.ratio):g}"
        values = row.values.get(self.dataset, {}) if row else {}
        if (printed := values.get(metric)) is None:
            raise InputError(
                f"--thresholds=calibrated: the paper prints no {metric} of this row on "
                f"{self.dataset}. Give a ratio, such as --thresholds=0.75."
            )
        return f"{RATIO}{printed / 100:g}"

    @property
    def paper(self) -> bool:
        """Whether settings, models and data are the paper's."""
        return self.scale == "paper"


Maker = Callable[[PrintedRow, Setting], Job]
"""Makes the job of a printed row."""


@dataclasses.dataclass(frozen=True)
class Line:
    """How a printed row is made.

    Attributes:
      job: makes the job that the row shows, usually a run.
      measures: by printed metric, where it is not `PrintedTable.metric_of` of the job's run.
      others: makes further jobs that the measures read, by name.
    """

    job: Maker
    measures: Mapping[str, Measure] = dataclasses.field(default_factory=dict)
    others: Mapping[str, Maker] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Table:
    """How a table is made.

    Attributes:
      data: the questions that stand for a data set at a scale.
      lines: by the printed rows' method.
      left_out: methods that are not run, with the reason.
      unnamed: the same at paper scale, since the paper does not name their models.
      measures: by printed metric, for all lines.
      datasets: the data sets behind rows that print averages alone.
      draw: for a figure with printed values: its pictures, from the results by printed row and
        questions, in the order of rows and columns.
      notes: what a reader of the table must know, such as where a setting differs from the paper.
    """

    data: Callable[[Scale, str], str]
    lines: Mapping[str, Line]
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unnamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    measures: Mapping[str, Measure] = dataclasses.field(default_factory=dict)
    datasets: tuple[str, ...] = ()
    draw: Callable[[Mapping[tuple[int, str], Results]], Sequence[Picture]] | None = None
    notes: Sequence[str] = ()

    def columns(self, printed: PrintedTable, scale: Scale) -> list[Column]:
        """The columns; data sets with the same questions at a scale are one."""
        return columns_of(printed.datasets or self.datasets, lambda name: self.data(scale, name))

    def values(self, row: PrintedRow) -> Mapping[str, Mapping[str, float | None]]:
        """A row's values by data set; a row of averages alone has None for each data set."""
        if set(row.values) != {AVERAGE}:
            return row.values
        return {**dict.fromkeys(self.datasets, dict.fromkeys(row.values[AVERAGE])), **row.values}

    def without(self, method: str, scale: Scale) -> str:
        """Why a method is not run at a scale; "" if it is."""
        reason = self.left_out.get(method, "")
        return reason or (self.unnamed.get(method, "") if scale == "paper" else "")


def columns_of(datasets: Sequence[str], data: Callable[[str], str]) -> list[Column]:
    """A column for the questions of each data set; one for all with the same questions."""
    by_data: dict[str, tuple[str, ...]] = {}
    for dataset in datasets:
        by_data[data(dataset)] = (*by_data.get(data(dataset), ()), dataset)
    return [Column(questions, names) for questions, names in by_data.items()]


class Picture(NamedTuple):
    """A drawn figure, with what it shows as plain JSON.

    ``suffix`` is of its file's name, where a figure has several.
    """

    svg: str
    numbers: object
    suffix: str = ""


@dataclasses.dataclass(frozen=True)
class Figure:
    """How a figure without printed values is made.

    Attributes:
      draw: the pictures, from the title and the results of all data sets; series without jobs are
        left out.
      series: the jobs of each series that can be drawn by itself, by its name.
    """

    title: str  # what it shows
    datasets: tuple[str, ...]
    data: Callable[[Scale, str], str]  # as in `Table`
    jobs: Mapping[str, Callable[[Setting], Job]]  # makes the jobs that it reads, by name
    draw: Callable[[str, Mapping[str, Results]], Sequence[Picture]]
    series: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    seeds: bool = False  # whether it draws all seeds of the trainings; else the first


class Declarations(NamedTuple):
    """All that is declared, by id, such as "dtr/table2".

    Attributes:
      released: by paper, a job with what the released code does instead of the paper.
    """

    tables: Mapping[str, Table]  # printed tables, and figures with printed values
    figures: Mapping[str, Figure]  # figures that are drawn
    left_out: Mapping[str, str]  # tables and figures that are not made, with the reason
    released: Mapping[str, Callable[[Job], Job]] = MappingProxyType({})

    @classmethod
    def of(cls, *parts: Declarations) -> Declarations:
        """The declarations of several papers."""
        fields = zip(*parts, strict=True)
        return cls(*({name: v for part in field for name, v in part.items()} for field in fields))
