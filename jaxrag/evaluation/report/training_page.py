"""Turns trainings' directories into one self-contained HTML page and its tables as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from jaxrag.core.durable_files import write_text
from jaxrag.evaluation.report import training_figures
from jaxrag.evaluation.report.document import configs, document, machines
from jaxrag.evaluation.report.grid import Grid
from jaxrag.evaluation.report.html_tables import mark
from jaxrag.evaluation.report.tables import difference_text, number, with_interval
from jaxrag.evaluation.training_log import (
    PARTS,
    REST,
    TrainingLog,
    changes,
    evaluations,
    is_share,
    read_training,
    seconds,
)
from jaxrag.types import InputError

READING = (
    "Before and after: the first and the last time that a figure was watched, shares in percent, "
    "with 95 % bootstrap intervals over questions. The change is paired, question by question; p: "
    "sign-flip test (McNemar's for figures of 0 and 1), not adjusted for several comparisons. Rows "
    "of several seeds compare each question's mean over them: their intervals tell nothing of "
    "other seeds.",
    "Asked: passages of a question that the language model was asked about during training, those "
    "of its pools aside (the paper's nDoc).",
)


def write_training_report(directories: Sequence[str | Path], out_html: str | Path) -> list[Grid]:
    """Writes the page, and its tables beside it under the same name ending in .md.

    Args:
      directories: of trainings.
      out_html: where the page goes.

    Returns:
      The tables: what changed (none where nothing was watched twice), and steps with their time.

    Raises:
      InputError: there are none, two have one name, or one is not a training's directory.
    """
    trainings = [read_training(path) for path in directories]
    labels = [one.label for one in trainings]
    if not labels or len(set(labels)) < len(labels):
        raise InputError(f"A report needs directories of different names; given: {labels}.")
    tables = [table for table in (changed(trainings), time_spent(trainings)) if table.rows]
    out = Path(out_html)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, _page(trainings, tables))
    write_text(out.with_suffix(".md"), "\n".join([*(t.markdown() for t in tables), *READING, ""]))
    return tables


def changed(trainings: Sequence[TrainingLog]) -> Grid:
    """What was watched, before and after."""
    rows = []
    for one in changes(trainings):
        share = is_share(one.name, trainings)
        metric = "exact_match" if share else one.name
        ends = (" ".join(with_interval(metric, at)) for at in (one.before, one.after))
        change = " ".join(difference_text(one.difference, share=share))
        rows.append((one.label, one.name, f"{one.difference.n:,}", *ends, change))
    return Grid(("training", "metric", "n", "before", "after", "change"), rows)


def time_spent(trainings: Sequence[TrainingLog]) -> Grid:
    """Steps, loss, and the share of time in each part."""
    spent = [seconds(one) for one in trainings]
    names = [name for name in (*PARTS.values(), REST) if any(name in one for one in spent)]
    rows = []
    for one, here in zip(trainings, spent, strict=True):
        total, count = sum(here.values()), sum("loss" in line for line in one.steps)
        asked = [line["asked"] for line in one.steps if "asked" in line]
        rows.append(
            (
                one.label,
                f"{count:,}",
                " → ".join(f"{loss:.3g}" for loss in training_figures.losses(one)),
                f"{asked[-1]:.2f}" if asked else "–",
                number("seconds", total / count if count else float("nan")),
                *(
                    f"{100 * here[name] / total:.1f}" if total and name in here else "–"
                    for name in names
                ),
            )
        )
    told = tuple(f"{name}\n%" for name in names)
    return Grid(("training", "steps", "loss", "asked", "s a\nstep", *told), rows)


def _share(part: float | None, total: float) -> str:
    return "–" if part is None or not total else f"{100 * part / total:.1f}"


def _page(trainings: Sequence[TrainingLog], tables: Sequence[Grid]) -> str:
    names = dict.fromkeys(name for one in trainings for name in evaluations(one))
    figures = [
        training_figures.curves(
            trainings, "loss", title="Loss", y_title="loss", note="Of each step's batch."
        ),
        training_figures.curves(
            trainings, "reward", title="Reward in training", y_title="reward",
            note="Mean over the texts that each step drew.",
        ),
        *(training_figures.progress(trainings, name) for name in names),
        training_figures.curves(
            trainings, "asked", title="Passages asked about", y_title="a question",
            note="Passages of a question that the language model was asked about so far.",
        ),
        training_figures.shares(trainings),
    ]  # fmt: skip
    legend = "".join(f"<span>{mark(i)}{escape(t.label)}</span>" for i, t in enumerate(trainings))
    section = (
        f"<section><h2>Training</h2>{''.join(table.html() for table in tables)}"
        f'<div class="legend" aria-hidden="true">{legend}</div>'
        f'<div class="figures">{"".join(figures)}</div></section>'
    )
    steps = sum("loss" in line for one in trainings for line in one.steps)
    days = sorted({str(e.get("started", ""))[:10] for t in trainings for e in t.environments})
    return document(
        title=" and ".join(one.label for one in trainings)
        if len(trainings) < 3
        else f"{len(trainings)} trainings",
        lede=f"{steps:,} steps, {' to '.join(dict.fromkeys((days[0], days[-1])))}.",
        facts=machines([e for one in trainings for e in one.environments]),
        sections=section,
        reading=READING,
        markdown="\n".join(table.markdown() for table in tables),
        configs=configs((one.label, one.config, one.environments) for one in trainings),
    )
