"""The report's figures as SVG: accuracy and cost, wins and losses, and gates on uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.core.printable import html_text
from jaxrag.evaluation.curves import ThresholdCurve, separation
from jaxrag.evaluation.report import svg
from jaxrag.evaluation.report.tables import number, with_interval
from jaxrag.evaluation.significance import Interval
from jaxrag.evaluation.summary import Row

LEAST_U = 1e-4  # nats; smaller values share the first bin of the histogram
BINS = 24
LETTER = 7.7  # pixels of a letter of a name, at the larger size of small screens


def figure(title: str, drawing: str, note: str) -> str:
    """A drawing with its title and a sentence on how to read it."""
    return (
        f"<figure><figcaption>{html_text(title)}</figcaption>{drawing}"
        f'<p class="note">{html_text(note)}</p></figure>'
    )


def forest(interval: Interval, run: int, *, top: float, reference: float) -> str:
    """A mean and its interval on a small axis from 0 to ``top``, with a line at the baseline."""
    x = svg.Scale(0, top, 4, 116)
    parts = [svg.line(4, 10, 116, 10, kind="grid")]
    if not math.isnan(reference):
        parts.append(svg.line(x(reference), 1, x(reference), 19, kind="rule"))
    if interval.n:
        parts.append(svg.line(x(interval.low), 10, x(interval.high), 10, kind=f"bar c{run % 8}"))
        parts.append(svg.marker(x(interval.mean), 10, run, size=4))
    return svg.drawing(parts, alt="", width=120, height=20)


def accuracy_against_cost(rows: Sequence[Row], cost: str, *, title: str) -> str:
    """Exact match of each run against one of its costs per question, with intervals."""
    points = [
        (i, row, row.means[cost].mean, row.means["exact_match"])
        for i, row in enumerate(rows)
        if row.means[cost].n and row.means["exact_match"].n
    ]
    if not points:
        return ""
    x = svg.x_scale(0, svg.nice_top(1.08 * max(point[2] for point in points)))
    y = svg.y_scale(0, 100 * svg.nice_top(max(point[3].high for point in points)))
    bars, marks, places = [], [], []
    for i, row, spent, em in points:
        px, py = x(spent), y(100 * em.mean)
        kind = f"bar c{i % svg.COLOURS}"
        bars.append(svg.line(px, y(100 * em.low), px, y(100 * em.high), kind=kind))
        tip = f"{row.label}: EM {' '.join(with_interval('exact_match', em))}, "
        marks.append(svg.marker(px, py, i, tip=f"{tip}{number(cost, spent)} {title}"))
        places.append(_Place(px, py, y(100 * em.high), y(100 * em.low), row.label))
    frame = svg.axes(x, y, x_title=f"{title} per question", y_title="EM %")
    drawing = svg.drawing(
        [frame, *bars, *marks, *_labels(places)],
        alt=f"Exact match against {title} per question",
    )
    return figure(f"Accuracy against {title}", drawing, "Up and to the left is better.")


class _Place(NamedTuple):
    """A mark's position, the ends of its interval, and its name."""

    x: float
    y: float
    top: float
    bottom: float
    name: str


def _labels(places: Sequence[_Place]) -> list[str]:
    """Names beside their marks where there is room; the legend has all."""
    taken = [(place.x - 7, place.y - 7, place.x + 7, place.y + 7) for place in places]
    taken += [(place.x - 2, place.top, place.x + 2, place.bottom) for place in places]
    parts = []
    for place in places:
        width = LETTER * len(place.name)
        near = [(side, place.y + 4) for side in (place.x + 10, place.x - 10 - width)]
        near += [(place.x - width / 2, base) for base in (place.top - 6, place.bottom + 14)]
        for left, base in near:
            box = (left, base - 10, left + width, base + 3)
            inside = box[0] >= svg.LEFT - 8 and box[2] <= svg.WIDTH and box[1] >= 16
            if inside and base < svg.BOTTOM and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                middle = left + width / 2
                parts.append(svg.text(middle, base, place.name, anchor="middle", kind="name halo"))
                break
    return parts


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def wins_and_losses(
    counts: Sequence[tuple[int, str, int, int]], *, baseline: str, questions: int
) -> str:
    """A bar for each run of ``counts``: position, label, wins and losses against the baseline."""
    if not counts:
        return ""
    top = svg.nice_top(max(max(wins, losses) for _, _, wins, losses in counts) or 1)
    centre, reach, step, thick = (svg.LEFT + svg.RIGHT) / 2, 140, 44, 16
    parts = [svg.line(centre, svg.TOP, centre, svg.TOP + step * len(counts), kind="axis")]
    parts.append(svg.text(centre - 8, 14, f"only {baseline} right", anchor="end", kind="label"))
    parts.append(svg.text(centre + 8, 14, "only this right", kind="label"))
    for row, (i, label, wins, losses) in enumerate(counts):
        base = svg.TOP + row * step
        won, lost = reach * wins / top, reach * losses / top
        kind = f"c{i % svg.COLOURS}"
        parts.append(svg.text(centre, base + 12, label, anchor="middle", kind="name halo"))
        bar_top = base + 16
        parts.append(svg.rect(centre - lost, bar_top, lost, thick, kind=f"loss {kind}"))
        parts.append(svg.rect(centre, bar_top, won, thick, kind=f"win {kind}"))
        middle = bar_top + thick / 2 + 4
        parts.append(svg.text(centre - lost - 5, middle, str(losses), anchor="end", kind="tick"))
        parts.append(svg.text(centre + won + 5, middle, str(wins), kind="tick"))
    height = svg.TOP + step * len(counts) + 8
    alt = f"Questions won and lost against {baseline}"
    drawing = svg.drawing(parts, alt=alt, height=height)
    note = f"Of {questions:,} shared questions, by exact match; the others are ties."
    return figure("Question by question", drawing, note)


def stacked(title: str, rows: Sequence[tuple[str, Mapping[str, int]]], note: str) -> str:
    """A figure with a bar for each row, cut into its numbers of questions."""
    names = list(dict.fromkeys(name for _, values in rows for name in values))
    left_end, height, thick = 4, 34, 16
    wide = 34 + 8 * max(map(len, names))
    beside = max(1, (svg.WIDTH - left_end) // wide)
    parts, base = [], svg.TOP + 20 * -(-len(names) // beside)
    for place, name in enumerate(names):
        left, top = left_end + wide * (place % beside), 4 + 20 * (place // beside)
        parts.append(svg.rect(left, top, 12, 12, kind=f"win c{place + 1}"))
        parts.append(svg.text(left + 18, top + 10, name, kind="name"))
    for row, (label, values) in enumerate(rows):
        top, total = base + height * row, sum(values.values())
        x, at = svg.Scale(0, total or 1, left_end, svg.RIGHT), 0.0
        parts.append(svg.text(left_end, top - 4, label, kind="name"))
        for place, name in enumerate(names):
            value = values.get(name, 0)
            width = x(at + value) - x(at)
            tip = f"{name}: {value} questions"
            parts.append(svg.rect(x(at), top, width, thick, kind=f"win c{place + 1}", tip=tip))
            if width > 26:
                middle = x(at) + width / 2
                parts.append(
                    svg.text(middle, top + 12, str(value), anchor="middle", kind="name halo")
                )
            at += value
    drawing = svg.drawing(parts, alt=title, height=base + height * len(rows) + 4)
    return figure(title, drawing, note)


def em_against_query_ratio(
    position: int, curve: ThresholdCurve, recorded: Sequence[tuple[int, str, float, float]]
) -> str:
    """Exact match as the threshold moves.

    ``curve`` is exact match if the answers of the run at ``position``, which always retrieved, are
    used where the direct answer is not accepted; ``recorded`` are position, label, query ratio and
    exact match of runs with a gate.
    """
    top = max(curve.mean.max(), np.quantile(curve.high, 0.8))
    x, y = svg.x_scale(0, 100), svg.y_scale(0, 100 * svg.nice_top(min(1, top)))
    kind = f"c{position % svg.COLOURS}"
    ends = [(x(100 * curve.query_ratio[i]), y(100 * curve.mean[i])) for i in (0, -1)]
    middle, up, down = (
        [(x(100 * r), y(100 * v)) for r, v in zip(curve.query_ratio, values, strict=True)]
        for values in (curve.mean, curve.high, curve.low)
    )
    parts = [
        svg.axes(x, y, x_title="answered without retrieval, %", y_title="EM %"),
        *_threshold_axis(curve, x),
        svg.path(up + down[::-1], kind=f"band {kind}", closed=True),
        svg.path(ends, kind=f"chance {kind}"),
        svg.line(x(0), svg.TOP, x(0), svg.BOTTOM, kind="cursor"),
        svg.path(middle, kind=f"curve {kind}"),
    ]
    for i, label, ratio, em in recorded:
        tip = f"{label} as run: EM {100 * em:.1f} %, {100 * ratio:.0f} % without retrieval"
        parts.append(svg.marker(x(100 * ratio), y(100 * em), i, tip=tip))
    note = (
        "Solid: EM of all questions if the least uncertain ones, up to this share, are answered "
        "directly and the others by a run that always retrieves. Dashed: if as many are picked at "
        "random. Above dashed: u is worth its cost. "
        + ("Marks: the gates as they were run. " if recorded else "")
        + "Band: 95 % intervals."
    )
    drawing = svg.drawing(parts, alt="Exact match against the share answered without retrieval")
    return figure("Moving the threshold", drawing, note)


def _threshold_axis(curve: ThresholdCurve, x: svg.Scale) -> list[str]:
    """Thresholds in nats above the plot, at their query ratios."""
    parts, last = [], -math.inf
    for share in (0.25, 0.5, 0.75):
        at = min(int(np.searchsorted(curve.query_ratio, share)), len(curve.threshold) - 1)
        if not math.isfinite(curve.threshold[at]):
            continue
        px = x(100 * curve.query_ratio[at])
        if px < last + 75:
            continue
        last = px
        name = f"u ≤ {curve.threshold[at]:.2g}"
        parts.append(svg.line(px, svg.TOP, px, svg.TOP + 5, kind="axis"))
        parts.append(svg.text(px, svg.TOP - 5, name, anchor="middle", kind="tick"))
    return parts


def uncertainty_histogram(
    u: Float[np.ndarray, " q"],
    right: Float[np.ndarray, " q"],
    thresholds: Sequence[tuple[int, str, float]],
) -> str:
    """Direct answers by u, right ones in the lower part of each bar; thresholds of the runs."""
    finite = u[np.isfinite(u)]
    most = max(10 ** math.ceil(math.log10(max(finite.max(initial=1), 0.1))), 1)
    least = 10.0 ** math.floor(math.log10(max(finite.min(initial=0.1), LEAST_U)))
    edges = np.geomspace(least, most, BINS + 1)
    bins = np.clip(np.searchsorted(edges, np.maximum(u, least), side="right") - 1, 0, BINS - 1)
    bins = np.where(np.isinf(u), BINS + 1, bins)
    good = np.bincount(bins[right == 1], minlength=BINS + 2)
    bad = np.bincount(bins[right == 0], minlength=BINS + 2)
    bars = BINS + 2 if np.isinf(u).any() else BINS
    width = (svg.RIGHT - svg.LEFT) / bars
    x = svg.Scale(least, most, svg.LEFT, svg.LEFT + BINS * width, log=True)
    y = svg.y_scale(0, svg.nice_top(max((good + bad).max(), 4)))
    last = round(math.log10(most)) + (bars == BINS)  # "empty" stands where the last one would
    decades = [10.0**p for p in range(round(math.log10(least)), last)]
    title = "uncertainty u of the direct answer, nats"
    parts = [svg.axes(x, y, x_title=title, y_title="questions", x_ticks=decades)]
    for i in np.flatnonzero((good + bad)[:bars]):
        left, total = svg.LEFT + i * width, good[i] + bad[i]
        span = "empty answers" if i > BINS else f"u from {edges[i]:.2g} to {edges[i + 1]:.2g}"
        tip = f"{span}: {good[i]} right, {bad[i]} wrong"
        top, middle = y(total), y(good[i])
        parts.append(svg.rect(left + 0.7, top, width - 1.4, middle - top, kind="wrong", tip=tip))
        low = svg.BOTTOM - middle
        parts.append(svg.rect(left + 0.7, middle, width - 1.4, low, kind="right", tip=tip))
    if bars > BINS:
        at = svg.LEFT + (BINS + 1.5) * width
        parts.append(svg.text(at, svg.BOTTOM + 18, "empty", anchor="end", kind="tick"))
    parts += _threshold_lines(thresholds, x)
    auroc = separation(u, right)
    chance = f" A wrong answer has a greater u than a right one {auroc:.0%} of the time."
    chance = "" if math.isnan(auroc) else chance
    counts = f"{int(good.sum()):,}", f"{int(bad.sum()):,}"
    note = f"Lower part of a bar: right ({counts[0]}); upper part: wrong ({counts[1]}).{chance}"
    drawing = svg.drawing(parts, alt="Histogram of uncertainty, right and wrong answers")
    return figure("Does uncertainty tell right from wrong?", drawing, note)


def _threshold_lines(thresholds: Sequence[tuple[int, str, float]], x: svg.Scale) -> list[str]:
    """A line at each threshold; its runs, of many its value, in a row where there is room."""
    parts, ends = [], list[float]()  # the right end of each row's last name
    values = sorted({value for _, _, value in thresholds})
    for value in values:
        runs = [(i, label) for i, label, other in thresholds if other == value]
        at, kind = x(value), f"threshold c{runs[0][0] % svg.COLOURS}"
        parts.append(svg.line(at, svg.TOP - 8, at, svg.BOTTOM, kind=kind))
        name = f"{value:g}" if len(values) > 2 else ", ".join(label for _, label in runs)
        width = LETTER * len(name)
        left = at - 5 - width if at - 5 - width > svg.LEFT else at + 5
        row = next((r for r, end in enumerate(ends) if end < left), len(ends))
        ends[row : row + 1] = [left + width + 4]
        middle, base = left + width / 2, svg.TOP + 14 * row
        parts.append(svg.text(middle, base, name, anchor="middle", kind="name halo"))
    return parts
