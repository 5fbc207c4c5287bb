"""Plots of papers' figures: curves, groups of bars, histograms and clouds of points, as SVG files.

A plot is a `Panel`; `sheet` lays panels out beside each other in a file of its own. The i-th series
of every panel of a sheet has the same colour and mark, named once in the legend.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxrag.core.printable import html_text
from jaxrag.evaluation.report import svg
from jaxrag.evaluation.report.figure_files import Alone, alone
from jaxrag.evaluation.significance import Interval

_GAP = 34  # between panels, in pixels
_TITLE = 22  # height of a panel's title, above the title of its y axis
_LETTER, _LINE = 6.2, 13  # mean width of a letter of a tick label, and distance of its lines
Range = tuple[float, float]


class Panel(NamedTuple):
    """A plot: its title, and its elements in a box of `svg.WIDTH` by `svg.HEIGHT`."""

    title: str
    drawn: str


class Curve(NamedTuple):
    """Points to be joined, in order, with an optional band around them."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def sheet(
    title: str, panels: Sequence[Panel], legend: Sequence[str] = (), *, columns: int = 3
) -> str:
    """A whole SVG file with the panels in rows of at most ``columns``, and one legend."""
    columns = min(columns, len(panels))
    parts = []
    for place, panel in enumerate(panels):
        x = place % columns * (svg.WIDTH + _GAP)
        y = place // columns * (svg.HEIGHT + _GAP)
        name = svg.text(svg.WIDTH / 2, -6, panel.title, anchor="middle", kind="name")
        parts.append(f'<g transform="translate({x} {y + _TITLE})">{name}{panel.drawn}</g>')
    rows = -(-len(panels) // columns)
    width = columns * (svg.WIDTH + _GAP) - _GAP
    height = rows * (svg.HEIGHT + _GAP) + _TITLE
    entries = [(svg.marker(7, 7, i), html_text(name)) for i, name in enumerate(legend)]
    return alone(Alone(html_text(title), width, height, "".join(parts), entries))


def curves(
    title: str,
    series: Sequence[Curve | None],
    *,
    x_title: str,
    y_title: str,
    x: Range | None = None,
    y: Range | None = None,
    log_x: bool = False,
) -> Panel:
    """A line through the points of each series; one that is None only uses up a colour."""
    drawn = [(i, curve) for i, curve in enumerate(series) if curve is not None and len(curve.x)]
    if not drawn:
        return Panel(title, "")
    across = _range([v for _, curve in drawn for v in curve.x], x)
    along = _range([v for _, curve in drawn for v in (*curve.y, *curve.low, *curve.high)], y)
    place_x, place_y = svg.x_scale(*across, log=log_x), svg.y_scale(*along)
    ticks = _decades(*across) if log_x else svg.nice_ticks(*across)
    if all(float(v).is_integer() for _, curve in drawn for v in curve.x):  # such as epochs
        ticks = [tick for tick in ticks if abs(tick - round(tick)) < 1e-9]
    parts = [svg.axes(place_x, place_y, x_title=x_title, y_title=y_title, x_ticks=ticks)]
    for i, curve in drawn:
        kind = f"c{i % svg.COLOURS}"
        if curve.low:
            up = [(place_x(a), place_y(b)) for a, b in zip(curve.x, curve.high, strict=True)]
            down = [(place_x(a), place_y(b)) for a, b in zip(curve.x, curve.low, strict=True)]
            parts.append(svg.path(up + down[::-1], kind=f"band {kind}", closed=True))
        points = [(place_x(a), place_y(b)) for a, b in zip(curve.x, curve.y, strict=True)]
        parts.append(svg.path(points, kind=f"curve {kind}"))
        if len(points) <= 12:
            parts += [svg.marker(*point, i, size=3) for point in points]
    return Panel(title, "".join(parts))


def bars(
    title: str,
    groups: Mapping[str, Sequence[Interval | None]],
    *,
    y_title: str,
    x_title: str = "",
    y: Range | None = None,
) -> Panel:
    """Bars with intervals, in groups by name; the i-th bar of each group has the i-th colour."""
    drawn = [bar for group in groups.values() for bar in group if bar is not None and bar.n]
    if not drawn:
        return Panel(title, "")
    along = y or (min(0.0, *(v.low for v in drawn)), svg.nice_top(max(v.high for v in drawn)))
    place, height = svg.x_scale(0, len(groups)), svg.y_scale(*along)
    parts = [svg.axes(place, height, x_title=x_title, y_title=y_title, x_ticks=())]
    most = max(map(len, groups.values()))
    for number, (name, group) in enumerate(groups.items()):
        middle, room = place(number + 0.5), place(1) - place(0)
        parts += [
            svg.text(middle, svg.BOTTOM + 18 + _LINE * i, words, anchor="middle", kind="tick")
            for i, words in enumerate(textwrap.wrap(name, max(int(room / _LETTER), 1)))
        ]
        for i, bar in enumerate(group):
            if bar is None or not bar.n:
                continue
            left = place(number + 0.12 + 0.76 * i / most)
            width = place(0.76 / most) - place(0)
            top, base = height(max(bar.mean, 0)), height(min(bar.mean, 0))
            tip = f"{name}: {bar.mean:.4g} [{bar.low:.4g}, {bar.high:.4g}], n = {bar.n}"
            kind = f"win c{i % svg.COLOURS}"
            parts.append(svg.rect(left, top, width - 1, base - top, kind=kind, tip=tip))
            if bar.low != bar.high:
                at = left + width / 2
                parts.append(svg.line(at, height(bar.low), at, height(bar.high), kind="whisker"))
    return Panel(title, "".join(parts))


def histogram(
    title: str,
    counts: Sequence[int],
    *,
    x_title: str,
    y_title: str = "frequency",
    edges: Sequence[float] = (),
    labels: Sequence[str] = (),
) -> Panel:
    """Counts as bars, with ``edges`` (one more than counts) or a label below each bar."""
    along = svg.y_scale(0, svg.nice_top(max(*counts, 1)))
    across = svg.x_scale(edges[0], edges[-1]) if edges else svg.x_scale(0, len(counts))
    ticks = None if edges else ()
    parts = [svg.axes(across, along, x_title=x_title, y_title=y_title, x_ticks=ticks)]
    skip = 1 + len(counts) // 12  # labels that would touch are left out
    for i, count in enumerate(counts):
        left, right = (edges[i], edges[i + 1]) if edges else (i, i + 1)
        top, start = along(count), across(left)
        width = across(right) - start - 1
        tip = f"{labels[i] if labels else f'{left:.3g} to {right:.3g}'}: {count}"
        parts.append(svg.rect(start, top, width, svg.BOTTOM - top, kind="right", tip=tip))
        if labels and (i % skip == 0 or i == len(counts) - 1):
            middle = (start + across(right)) / 2
            parts.append(svg.text(middle, svg.BOTTOM + 18, labels[i], anchor="middle", kind="tick"))
    return Panel(title, "".join(parts))


def scatter(
    title: str,
    clouds: Sequence[Sequence[tuple[float, float]]],
    *,
    x_title: str,
    y_title: str,
    x: Range | None = None,
    y: Range | None = None,
    line: Sequence[tuple[float, float]] = (),
) -> Panel:
    """Points, a colour for each cloud, and a line through the points of ``line``."""
    points = [point for cloud in clouds for point in cloud]
    place_x = svg.x_scale(*_range([a for a, _ in points], x))
    place_y = svg.y_scale(*_range([b for _, b in points], y))
    parts = [svg.axes(place_x, place_y, x_title=x_title, y_title=y_title)]
    for i, cloud in enumerate(clouds):
        kind = f"dot c{i % svg.COLOURS}"
        parts += [
            f'<circle cx="{place_x(a):.1f}" cy="{place_y(b):.1f}" r="1.8" class="{kind}"/>'
            for a, b in cloud
        ]
    if line:
        ends = [(place_x(a), place_y(b)) for a, b in line]
        parts.append(svg.path(ends, kind=f"curve c{len(clouds) % svg.COLOURS}"))
    return Panel(title, "".join(parts))


def _range(values: Sequence[float], given: Range | None) -> Range:
    """The given range, or that of the values, widened where they are all equal."""
    if given is not None:
        return given
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten between two positive numbers; below three, also their doubles and fives."""
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high) + 1e-9)
    ticks = [m * 10.0**power for power in range(first, last + 1) for m in (1, 2, 5)]
    inside = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    powers = [tick for tick in inside if f"{tick:e}".startswith("1.0")]
    return powers if len(powers) > 2 else inside
