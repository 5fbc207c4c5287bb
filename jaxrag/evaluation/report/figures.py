"""The report's figures of whole runs as SVG: intervals, accuracy against cost, wins and losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from jaxrag.evaluation.report import svg
from jaxrag.evaluation.report.tables import number, with_interval
from jaxrag.evaluation.significance import Interval
from jaxrag.evaluation.summary import Row


def figure(title: str, drawing: str, note: str) -> str:
    """A drawing with its title and a sentence on how to read it."""
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>{drawing}"
        f'<p class="note">{escape(note)}</p></figure>'
    )


def forest(found: Interval, run: int, *, top: float, reference: float) -> str:
    """A mean with its interval on a small strip from 0 to ``top``; a rule at the baseline."""
    x = svg.Scale(0, top, 4, 116)
    parts = [svg.line(4, 10, 116, 10, kind="grid")]
    if not math.isnan(reference):
        parts.append(svg.line(x(reference), 1, x(reference), 19, kind="rule"))
    if found.n:
        parts.append(svg.line(x(found.low), 10, x(found.high), 10, kind=f"bar c{run % 8}"))
        parts.append(svg.marker(x(found.mean), 10, run, size=4))
    return svg.drawing(parts, says="", width=120, height=20)


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
        [frame, *bars, *marks, *_labels(places)], says=f"Exact match against {title} per question"
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
    """Names beside their marks where there is room; the legend has those without."""
    taken = [(place.x - 7, place.y - 7, place.x + 7, place.y + 7) for place in places]
    taken += [(place.x - 2, place.top, place.x + 2, place.bottom) for place in places]
    parts = []
    for place in places:
        width = 7.1 * len(place.name)
        for left, base in (
            (place.x + 10, place.y + 4),
            (place.x - 10 - width, place.y + 4),
            (place.x - width / 2, place.top - 6),
            (place.x - width / 2, place.bottom + 14),
            (place.x + 8, place.y - 9),
            (place.x + 8, place.y + 17),
        ):
            box = (left, base - 10, left + width, base + 3)
            inside = box[0] >= svg.LEFT - 8 and box[2] <= svg.WIDTH and box[1] >= 16
            if inside and base < svg.BOTTOM and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                parts.append(
                    svg.text(left + width / 2, base, place.name, anchor="middle", kind="name halo")
                )
                break
    return parts


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def wins_and_losses(
    counts: Sequence[tuple[int, str, int, int]], *, baseline: str, questions: int
) -> str:
    """For each run, how many questions only it got right, and only the baseline.

    ``counts`` hold position, label, wins and losses.
    """
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
    says = f"Questions won and lost against {baseline}"
    drawing = svg.drawing(parts, says=says, height=height)
    note = f"Of {questions:,} shared questions, by exact match; the others are ties."
    return figure("Question by question", drawing, note)
