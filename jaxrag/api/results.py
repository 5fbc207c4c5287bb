"""Runs, comparisons and reports from Python."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from jaxrag.api.rag import Rag
from jaxrag.core.file_states import one_start
from jaxrag.core.printable import html_text
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.report import tables
from jaxrag.evaluation.report.export import runs_columns
from jaxrag.evaluation.report.figure_files import figures_of
from jaxrag.evaluation.report.page import page, write_files
from jaxrag.evaluation.status import named_directories
from jaxrag.evaluation.summary import BASELINE, Row, summarise, summarise_read
from jaxrag.runs.config_file import load as load_config
from jaxrag.runs.edits import edited
from jaxrag.runs.job import Job, Outcome
from jaxrag.runs.run import Run, execute
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class RunResults:
    """Rows of results, one per run, with intervals and paired differences; shown as a table."""

    rows: tuple[Row, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The run directories."""
        return tuple(row.path for row in self.rows)

    def __str__(self) -> str:
        buffer = io.StringIO()
        console = Console(file=buffer, width=104, force_terminal=False, force_jupyter=False)
        console.print(tables.terminal_table(self.rows))
        return buffer.getvalue().rstrip("\n")

    __repr__ = __str__

    def to_pandas(self) -> Any:
        """The report's .csv file as a ``pandas.DataFrame``; InputError without pandas."""
        try:
            import pandas  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise InputError("to_pandas needs pandas: pip install pandas") from None
        headings, lines = runs_columns(self.rows)
        return pandas.DataFrame(lines, columns=headings)

    def _repr_html_(self) -> str:
        parts = [_table(self.rows, name) for name in dict.fromkeys(r.dataset for r in self.rows)]
        parts += [f"<p><b>{html_text(note)}</b></p>" for note in tables.notes(self.rows)]
        return f"{''.join(parts)}<p><small>{html_text(tables.NOTE)}</small></p>"


_COLUMNS = ("exact_match", "f1", "contains", "trigger", "llm_calls", "prompt_tokens")


def _table(rows: Sequence[Row], dataset: str) -> str:
    """The rows of a data set as HTML without a style sheet."""
    heads = ("method", "questions", *(tables.HEADINGS[name] for name in _COLUMNS), "ΔEM")
    lines = []
    for row in (row for row in rows if row.dataset == dataset):
        cells = [row.label, tables.count_text(row)]
        for name in _COLUMNS:
            mean, ends = tables.with_interval(name, row.means[name])
            cells.append(f"{mean} {ends}".strip() if name in tables.PERCENT else mean)
        change = " ".join(tables.difference_text(row.differences.get("exact_match")))
        lines.append((*cells, change if row.baseline else "baseline"))
    return f"<p><b>{html_text(dataset)}</b></p>{tables.Grid(heads, lines).html()}"


@one_start()
def run(
    source: str | Run | Rag | Job, workdir: str | Path, changes: Mapping[str, Any] | None = None
) -> RunResults | Outcome:
    """Executes a run or another job, or continues it, in a directory of its own.

    InputError if the settings do not fit, or ``workdir`` belongs to another job.

    Examples:
      >>> results = jaxrag.run("configs/dtr.py:dtr@tiny", "runs/first2-dtr", {"limit": 2})
      >>> results.rows[0].answered
      2

    Args:
      source: FILE:VARIANT of a config, a job, or a loaded method.
      workdir: directory of the job.
      changes: new values of settings by their dotted names.

    Returns:
      The results of a run of a method; of another job, such as a training, its outcome.
    """
    job: Any = load_config(source) if isinstance(source, str) else source
    job = edited(job.settings if isinstance(job, Rag) else job, changes or {})
    if not isinstance(job, Run):
        return job.execute(workdir)
    execute(job, workdir)
    return compare(workdir)


def compare(*runs: str | Path | RunResults, baseline: str = BASELINE) -> RunResults:
    """Compares runs question by question with a baseline: intervals, differences, p-values.

    Questions with other gold answers, and runs that searched another corpus, are not paired; the
    rows' ``notes`` say so. InputError without a run, or if one is not a run directory.

    Examples:
      >>> dtr = jaxrag.run("configs/dtr.py:dtr@tiny", "runs/first2-dtr", {"limit": 2})
      >>> rag = jaxrag.run("configs/dtr.py:standard_rag@tiny", "runs/first2-rag", {"limit": 2})
      >>> [row.baseline for row in jaxrag.compare(dtr, rag).rows]
      ['standard_rag', '']

    Args:
      runs: run directories, parents of some, patterns such as "runs/*", or results of `run`.
      baseline: method, label or directory of a run; without the default, the first one is taken.
    """
    return RunResults(tuple(summarise(_directories(runs), baseline=baseline)))


def _directories(runs: Sequence[str | Path | RunResults]) -> list[Path]:
    names: list[str | Path] = []
    for source in runs:
        names += source.paths if isinstance(source, RunResults) else [source]
    if not names:
        raise InputError("give at least one run directory, or the results of jaxrag.run.")
    return named_directories(names)


@dataclasses.dataclass(frozen=True)
class DrawnFigure:
    """A figure of a report, drawn by a notebook."""

    title: str
    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<DrawnFigure {self.title!r}>"


@dataclasses.dataclass(frozen=True)
class Report:
    """A report page, shown inline in a notebook: its whole ``html``, and the rows of its table."""

    html: str
    results: RunResults

    @property
    def figures(self) -> list[DrawnFigure]:
        """The page's figures, each with its title."""
        return [DrawnFigure(title, drawn) for title, drawn in figures_of(self.html)]

    def save(self, path: str | Path) -> Path:
        """Writes the page, and its table beside it: the same name ending in .md, .csv and .tex."""
        write_files(Path(path), self.html, self.results.rows)
        return Path(path)

    def __repr__(self) -> str:
        return str(self.results)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, whose scripts cannot reach the notebook."""
        return (
            '<iframe sandbox="allow-scripts" style="width:100%;height:640px;border:1px solid #ccc" '
            f'srcdoc="{html_text(self.html)}"></iframe>'
        )


def report(
    *runs: str | Path | RunResults, out: str | Path = "", baseline: str = BASELINE
) -> Report:
    """The report page of runs: tables, figures, and every question's trace.

    InputError without a run, or if one is not a run directory.

    Examples:
      >>> dtr = jaxrag.run("configs/dtr.py:dtr@tiny", "runs/first2-dtr", {"limit": 2})
      >>> page = jaxrag.report(dtr, out="runs/report.html")
      >>> page.html.startswith("<!doctype html>")
      True

    Args:
      runs: run directories, or results of `run`.
      out: file to write, with its table beside it as .md, .csv and .tex; "" writes none.
      baseline: as in `compare`.
    """
    records = [read_run(path) for path in _directories(runs)]
    rows = summarise_read(records, baseline=baseline)
    shown = Report(page(records, rows), RunResults(tuple(rows)))
    if out:
        shown.save(out)
    return shown
