"""Turns directories of trainings into one self-contained HTML page and Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxrag.core.durable_files import write_text
from jaxrag.core.printable import html_text
from jaxrag.evaluation.records import failure
from jaxrag.evaluation.report import svg
from jaxrag.evaluation.report.document import configs, document, machines
from jaxrag.evaluation.report.figures import figure
from jaxrag.evaluation.report.svg import mark
from jaxrag.evaluation.report.tables import Grid, difference_text, number, with_interval
from jaxrag.evaluation.significance import interval
from jaxrag.evaluation.training_log import (
    TrainingLog,
    changes,
    evaluations,
    is_share,
    read_training,
)
from jaxrag.types import InputError

READING = (
    "Before and after: the first and the last evaluation of a metric, shares in percent, with 95 % "
    "bootstrap intervals over questions. The change is paired, question by question; p: sign-flip "
    "test (McNemar's for metrics of 0 and 1), not adjusted for several comparisons. Rows of "
    "several seeds compare each question's mean over the seeds: their intervals do not cover the "
    "choice of seeds.",
    "Scored: passages per question that the language model has scored during training, without "
    "those of the initial pools (the paper's nDoc).",
)


def write_training_report(directories: Sequence[str | Path], out_html: str | Path) -> list[Grid]:
    """Writes the page, and its tables beside it under the same name ending in .md.

    Returns the tables: changes (none if no metric was evaluated twice), and steps with their loss.
    InputError without directories, for two of the same name, or one that is not a training's.
    """
    trainings = [read_training(path) for path in directories]
    labels = [training.label for training in trainings]
    if not labels or len(set(labels)) < len(labels):
        raise InputError(f"A report needs directories of different names; given: {labels}.")
    tables = [table for table in (changed(trainings), losses(trainings)) if table.rows]
    out = Path(out_html)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, _page(trainings, tables))
    write_text(out.with_suffix(".md"), "\n".join([*(t.markdown() for t in tables), *READING, ""]))
    return tables


def changed(trainings: Sequence[TrainingLog]) -> Grid:
    """Table of metrics before and after training."""
    rows = []
    for delta in changes(trainings):
        share = is_share(delta.name, trainings)
        metric = "exact_match" if share else delta.name
        ends = (" ".join(with_interval(metric, at)) for at in (delta.before, delta.after))
        change = " ".join(difference_text(delta.difference, share=share))
        rows.append((delta.label, delta.name, f"{delta.difference.n:,}", *ends, change))
    return Grid(("training", "metric", "n", "before", "after", "change"), rows)


def losses(trainings: Sequence[TrainingLog]) -> Grid:
    """Table of steps, of the loss of the first and the last tenth of them, and of their seconds."""
    rows = []
    for training in trainings:
        steps = [line for line in training.steps if "loss" in line]
        scored = [line["asked"] for line in training.steps if "asked" in line]
        values = [float(line["loss"]) for line in steps]
        tenth = max(1, len(values) // 10)  # of the steps: the loss of one is noise
        medians = (np.median(some) for some in (values[:tenth], values[-tenth:]))
        total = sum(float(line.get("seconds", 0)) for line in training.steps)
        rows.append(
            (
                training.label,
                f"{len(steps):,}",
                " → ".join(f"{loss:.3g}" for loss in medians) if steps else "–",
                f"{scored[-1]:.2f}" if scored else "–",
                number("seconds", total / len(steps) if steps else float("nan")),
            )
        )
    return Grid(("training", "steps", "loss", "scored", "s per\nstep"), rows)


def _page(trainings: Sequence[TrainingLog], tables: Sequence[Grid]) -> str:
    names = dict.fromkeys(name for training in trainings for name in evaluations(training))
    figures = [
        curves(trainings, "loss", "Loss", "Loss of each step's batch."),
        curves(
            trainings, "reward", "Reward in training", "Mean over the texts sampled in each step."
        ),
        *(progress(trainings, name) for name in names),
    ]
    legend = "".join(f"<span>{mark(i)}{html_text(t.label)}</span>" for i, t in enumerate(trainings))
    stopped = [(log.label, why) for log in trainings if (why := failure(log.path))]
    warnings = "".join(
        f'<p class="warn">{html_text(f"{label} stopped: {why}")}</p>' for label, why in stopped
    )
    section = (
        f"<section><h2>Training</h2>{warnings}{''.join(table.html() for table in tables)}"
        f'<div class="legend" aria-hidden="true">{legend}</div>'
        f'<div class="figures">{"".join(figures)}</div></section>'
    )
    steps = sum("loss" in line for log in trainings for line in log.steps)
    days = sorted({str(e.get("started", ""))[:10] for t in trainings for e in t.environments})
    return document(
        title=" and ".join(log.label for log in trainings)
        if len(trainings) < 3
        else f"{len(trainings)} trainings",
        lede=f"{steps:,} steps, {' to '.join(dict.fromkeys((days[0], days[-1])))}.",
        facts=machines([e for log in trainings for e in log.environments]),
        sections=section,
        reading=READING,
        markdown="\n".join(table.markdown() for table in tables),
        configs=configs((log.label, log.config, log.environments) for log in trainings),
    )


def curves(trainings: Sequence[TrainingLog], column: str, title: str, note: str) -> str:
    """A figure of a column of metrics.jsonl by step; empty if no training has it."""
    lines = [
        [(line["step"], float(line[column])) for line in training.steps if column in line]
        for training in trainings
    ]
    if not any(lines):
        return ""
    x, y = _scales(trainings, [value for points in lines for _, value in points])
    parts = [svg.axes(x, y, x_title="step", y_title=column)]
    for i, points in enumerate(lines):
        if points:
            places = [(x(step), y(value)) for step, value in points]
            parts.append(svg.path(places, kind=f"curve c{i % svg.COLOURS}"))
    return figure(title, svg.drawing(parts, alt=f"{title} by step"), note)


def progress(trainings: Sequence[TrainingLog], name: str) -> str:
    """A figure of an evaluated metric by step, with intervals."""
    evaluated = [evaluations(log).get(name, []) for log in trainings]
    count = not is_share(name, trainings)
    means = [[(step, interval(v, count=count)) for step, v in points] for points in evaluated]
    defined = [[(step, at) for step, at in points if at.n] for points in means]
    if not any(defined):
        return ""
    factor, unit = (1, "") if count else (100, "%")
    ends = [factor * end for points in defined for _, at in points for end in (at.low, at.high)]
    drawn = [training for training, points in zip(trainings, defined, strict=True) if points]
    x, y = _scales(drawn, ends)
    parts = [svg.axes(x, y, x_title="step", y_title=unit)]
    aside = 5.0  # keeps intervals of several trainings apart
    for i, points in enumerate(defined):
        place = sum(map(bool, defined[:i])) - (len(drawn) - 1) / 2
        kind, moved = f"c{i % svg.COLOURS}", aside * place
        places = [(x(step) + moved, y(factor * at.mean)) for step, at in points]
        parts.append(svg.path(places, kind=f"curve {kind}"))
        for (px, py), (step, at) in zip(places, points, strict=True):
            mean, low, high = (factor * value for value in at[:3])
            parts.append(svg.line(px, y(low), px, y(high), kind=f"bar {kind}"))
            tip = f"step {step}: {mean:.4g} {unit} [{low:.4g}, {high:.4g}]"
            parts.append(svg.marker(px, py, i, size=4, tip=tip))
    questions = max(at.n for points in defined for _, at in points)
    note = f"Mean over {questions:,} held-out questions, with 95 % intervals."
    return figure(name, svg.drawing(parts, alt=f"{name} by step"), note)


def _scales(
    trainings: Sequence[TrainingLog], values: Sequence[float]
) -> tuple[svg.Scale, svg.Scale]:
    """Scales of steps and of values; the latter includes 0."""
    high, low = max(values), min(values)
    top = svg.nice_top(high) if high > 0 or low >= 0 else 0.0
    bottom = -svg.nice_top(-low) if low < 0 else 0.0
    last = max(log.steps[-1]["step"] for log in trainings)
    aside = max(last, 1) / 20  # room for marks beside each other
    return svg.x_scale(-aside, max(last, 1) + aside), svg.y_scale(bottom, top)
