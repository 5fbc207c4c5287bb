"""Turns run directories into one self-contained HTML page and a Markdown table.

Style, script, figures and the traces of all questions are inside it. Text from runs is escaped, or
written by the page's script as text, never as HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from jaxrag.core.durable_files import write_text
from jaxrag.evaluation.records import RunRecords, read_run
from jaxrag.evaluation.report import sections
from jaxrag.evaluation.report.document import configs, document, machines, once, part
from jaxrag.evaluation.report.tables import NOTE, markdown_table
from jaxrag.evaluation.report.traces import packed
from jaxrag.evaluation.summary import BASELINE, Row, by_dataset, name_of, rows
from jaxrag.types import InputError

READING = (
    NOTE,
    "An interval for a score that is 0 or 1 for every question is Wilson's. Questions that ended "
    "in an error count in no mean. Seconds are each question's share of the time that the engines "
    "worked; what a run found in the store cost it none.",
    "Recall: share of the gold passages that the reader was given. Coverage: all of them; hit: at "
    "least one. IR: whether the first passage that the reader was given holds a gold answer, title "
    "and text compared as strings; not of closed questions. Trigger: share of questions sent to "
    "retrieval.",
    "The uncertainty u of an answer is the mean negative log-likelihood of its tokens, in nats; an "
    "empty answer is infinitely uncertain.",
)


def write_report(
    run_dirs: Sequence[str | Path], out_html: str | Path, *, baseline: str = BASELINE
) -> list[Row]:
    """Writes the page, and the table beside it under the same name ending in .md.

    Args:
      run_dirs: run directories; one of them is a method on a data set.
      out_html: where the page goes.
      baseline: as for ``summary.summarise``.

    Returns:
      The rows of the table.

    Raises:
      InputError: there are no runs, or one is not a run directory.
    """
    if not run_dirs:
        raise InputError("a report needs at least one run directory")
    runs = [read_run(path) for path in run_dirs]
    table = rows(runs, baseline=baseline)
    out = Path(out_html)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, page(runs, table))
    write_text(out.with_suffix(".md"), markdown_table(table))
    return table


def page(runs: Sequence[RunRecords], table: Sequence[Row]) -> str:
    """The HTML of the report."""
    body = [
        sections.dataset_section(members, [row for row in table if row.dataset == name])
        for name, members in by_dataset(runs).items()
    ]
    scripts = Template(part("scripts.html")).substitute(
        traces=packed(runs), script=part("browser.js")
    )
    return document(
        title=_title(runs),
        lede=_lede(runs, table),
        facts=facts(runs),
        sections="\n".join([*body, part("questions.html")]),
        reading=READING,
        markdown=markdown_table(table),
        configs=configs((_name(run), run.config, run.environments) for run in runs),
        scripts=scripts,
    )


def _name(run: RunRecords) -> str:
    return f"{name_of(run.config, 'method')} on {name_of(run.config, 'dataset')}"


def _title(runs: Sequence[RunRecords]) -> str:
    datasets = list(by_dataset(runs))
    methods = list(dict.fromkeys(name_of(run.config, "method") for run in runs))
    what = methods[0] if len(methods) == 1 else f"{len(methods)} methods"
    where = " and ".join([", ".join(datasets[:-1]), datasets[-1]] if datasets[1:] else datasets)
    return f"{what} on {where}"


def _lede(runs: Sequence[RunRecords], table: Sequence[Row]) -> str:
    models = dict.fromkeys(name_of(run.config, "language_model") for run in runs)
    days = sorted({str(e.get("started", ""))[:10] for run in runs for e in run.environments} - {""})
    when = f", {days[0]}" if len(days) == 1 else f", {days[0]} to {days[-1]}" if days else ""
    return f"{sum(row.answered for row in table):,} answers by {', '.join(models)}{when}."


def facts(runs: Sequence[RunRecords]) -> list[tuple[str, str]]:
    """What the page's head says of models, data, machine and software; each value once."""
    found = {
        "Language model": [_brief(run.config.get("language_model")) for run in runs],
        "Retriever": [_brief(run.config.get("retriever")) for run in runs],
        "Data": [_data(run.config.get("dataset")) for run in runs],
    }
    return once(found) + machines([e for run in runs for e in run.environments])


def _brief(value: Any) -> str:
    """A part of a config in few words: its name and dtype, or what it is made of."""
    if not isinstance(value, Mapping):
        return str(value or "")
    if "name" in value:
        return ", ".join(str(value[key]) for key in ("name", "dtype") if key in value)
    return ", ".join(str(key) for key, part in value.items() if isinstance(part, Mapping))


def _data(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value or "")
    counts = [
        f"{value[k]:,} {k}" for k in ("questions", "passages") if isinstance(value.get(k), int)
    ]
    return ": ".join([str(value.get("name", "unnamed")), *[", ".join(counts)] * bool(counts)])
