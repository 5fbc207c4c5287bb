"""The training report's figures: the loss, what was watched, passages asked about, and time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxrag.evaluation.report import svg
from jaxrag.evaluation.report.figures import figure
from jaxrag.evaluation.significance import interval
from jaxrag.evaluation.training_log import TrainingLog, evaluations, first_online, is_share, seconds

_STEP, _THICK, _LEFT = 34, 16, 4


def curves(
    trainings: Sequence[TrainingLog], column: str, *, title: str, y_title: str, note: str
) -> str:
    """A figure of every step as one line a training; empty where no training has it."""
    lines = [
        [(line["step"], float(line[column])) for line in one.steps if column in line]
        for one in trainings
    ]
    if not any(lines):
        return ""
    x, y = _scales(trainings, [value for points in lines for _, value in points])
    parts = [svg.axes(x, y, x_title="step", y_title=y_title), *_phases(trainings, x)]
    for i, points in enumerate(lines):
        if points:
            places = [(x(step), y(value)) for step, value in points]
            parts.append(svg.path(places, kind=f"curve c{i % svg.COLOURS}"))
    return figure(title, svg.drawing(parts, says=f"{title} by step"), note + _told(trainings))


def progress(trainings: Sequence[TrainingLog], name: str) -> str:
    """What was watched, with intervals, by step."""
    found = [evaluations(one).get(name, []) for one in trainings]
    means = [[(step, interval(values)) for step, values in points] for points in found]
    known = [[(step, at) for step, at in points if at.n] for points in means]
    if not any(known):
        return ""
    factor, unit = (100, "%") if is_share(name, trainings) else (1, "")
    ends = [factor * end for points in known for _, at in points for end in (at.low, at.high)]
    shown = [one for one, points in zip(trainings, known, strict=True) if points]
    x, y = _scales(shown, ends)
    parts = [svg.axes(x, y, x_title="step", y_title=unit), *_phases(shown, x)]
    aside = 5.0  # so that intervals of several trainings do not cover each other
    for i, points in enumerate(known):
        place = sum(map(bool, known[:i])) - (len(shown) - 1) / 2
        kind, moved = f"c{i % svg.COLOURS}", aside * place
        places = [(x(step) + moved, y(factor * at.mean)) for step, at in points]
        parts.append(svg.path(places, kind=f"curve {kind}"))
        for (px, py), (step, at) in zip(places, points, strict=True):
            mean, low, high = (factor * value for value in at[:3])
            parts.append(svg.line(px, y(low), px, y(high), kind=f"bar {kind}"))
            tip = f"step {step}: {mean:.4g} {unit} [{low:.4g}, {high:.4g}]"
            parts.append(svg.marker(px, py, i, size=4, tip=tip))
    questions = max(at.n for points in known for _, at in points)
    note = f"Mean over {questions:,} questions that are not trained on, with 95 % intervals."
    return figure(name, svg.drawing(parts, says=f"{name} by step"), note + _told(shown))


def shares(trainings: Sequence[TrainingLog]) -> str:
    """Where the time went: a bar a training, its parts from left to right."""
    spent = [seconds(one) for one in trainings]
    names = list(dict.fromkeys(name for one in spent for name in one))
    if len(names) < 2:
        return ""
    x = svg.Scale(0, 100, _LEFT, svg.RIGHT)
    parts, base = [], svg.TOP + 20 * -(-len(names) // 3)
    for place, name in enumerate(names):
        left, top = _LEFT + 128 * (place % 3), 4 + 20 * (place // 3)
        parts.append(svg.rect(left, top, 12, 12, kind=f"win c{place + 1}"))
        parts.append(svg.text(left + 18, top + 10, name, kind="name"))
    for row, (one, here) in enumerate(zip(trainings, spent, strict=True)):
        top, at, total = base + _STEP * row, 0.0, sum(here.values())
        parts.append(svg.text(_LEFT, top - 4, one.label, kind="name"))
        for place, name in enumerate(names):
            share = 100 * here.get(name, 0) / total if total else 0.0
            tip = f"{name}: {share:.1f} %, {here.get(name, 0):,.0f} s"
            width = x(at + share) - x(at)
            parts.append(svg.rect(x(at), top, width, _THICK, kind=f"win c{place + 1}", tip=tip))
            if width > 26:
                middle = x(at) + width / 2
                told = f"{share:.0f}"
                parts.append(svg.text(middle, top + 12, told, anchor="middle", kind="name halo"))
            at += share
    height = base + _STEP * len(trainings) + 4
    drawing = svg.drawing(parts, says="Share of time in each part", height=height)
    note = "Percent of the steps' seconds. The rest: making batches, and what was watched."
    return figure("Where the time went", drawing, note)


def _scales(
    trainings: Sequence[TrainingLog], values: Sequence[float]
) -> tuple[svg.Scale, svg.Scale]:
    """Of steps, and of the values with 0."""
    high, low = max(values), min(values)
    top = svg.nice_top(high) if high > 0 or low >= 0 else 0.0
    bottom = -svg.nice_top(-low) if low < 0 else 0.0
    last = max(one.steps[-1]["step"] for one in trainings)
    aside = max(last, 1) / 20  # room for marks that stand beside each other
    return svg.x_scale(-aside, max(last, 1) + aside), svg.y_scale(bottom, top)


def _phases(trainings: Sequence[TrainingLog], x: svg.Scale) -> list[str]:
    """A rule where each training begins to learn from what it finds."""
    places = sorted({step - 0.5 for one in trainings if (step := first_online(one)) is not None})
    return [svg.line(x(at), svg.TOP, x(at), svg.BOTTOM, kind="rule") for at in places]


def _told(trainings: Sequence[TrainingLog]) -> str:
    online = any(first_online(one) is not None for one in trainings)
    return " Left of the dotted rule: warm-up; right: online." * online


def losses(training: TrainingLog) -> tuple[float, float]:
    """Medians of the loss in the first and the last tenth of the steps."""
    values = [float(line["loss"]) for line in training.steps if "loss" in line]
    if not values:
        return float("nan"), float("nan")
    tenth = max(1, len(values) // 10)
    return float(np.median(values[:tenth])), float(np.median(values[-tenth:]))
