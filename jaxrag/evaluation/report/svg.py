"""SVG elements of the report's figures.

Colours and fonts come from the page's style sheet through class names (``c0`` to ``c7`` for runs,
``right`` and ``wrong`` for answers), so that one drawing serves light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxrag.core.printable import html_text

WIDTH, HEIGHT = 400, 290
LEFT, RIGHT, TOP, BOTTOM = 40, 388, 28, 244
COLOURS = 8


class Scale(NamedTuple):
    """Maps values between ``low`` and ``high`` to positions between ``start`` and ``stop``."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Position of a value; values outside map to the ends."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (self.stop - self.start) * (value - low) / (high - low)


def x_scale(low: float, high: float) -> Scale:
    """A scale over the width of the plot area."""
    return Scale(low, high, LEFT, RIGHT)


def y_scale(low: float, high: float) -> Scale:
    """A scale over the height of the plot area, upwards."""
    return Scale(low, high, BOTTOM, TOP)


def nice_top(value: float) -> float:
    """The least of 1, 2, 2.5, 4, 5, 6, 8 times a power of ten that is not below ``value``."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 2, 2.5, 4, 5, 6, 8, 10) if m * power >= value * (1 - 1e-9))


def nice_ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Round numbers between ``low`` and ``high``, at most ``most`` of them."""
    raw = (high - low) / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10, 20) if _count(low, high, m * power) <= most)
    first = math.ceil(low / step - 1e-9)
    return [step * (first + i) for i in range(_count(low, high, step))]


def _count(low: float, high: float, step: float) -> int:
    return math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9) + 1


def brief(value: float) -> str:
    """A tick label: 0.001, 0.25, 12, 1.5k."""
    if abs(value) >= 1000:
        return f"{value / 1000:g}k"
    return f"{value:.6g}"


def text(x: float, y: float, content: str, *, anchor: str = "start", kind: str = "") -> str:
    """Escaped text at a position."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">'
        f"{html_text(content)}</text>"
    )


def line(x1: float, y1: float, x2: float, y2: float, *, kind: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def rect(x: float, y: float, width: float, height: float, *, kind: str, tip: str = "") -> str:
    """A rectangle with a tooltip."""
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"'
    return f'<rect {box} class="{kind}">{_tip(tip)}</rect>'


def path(points: Sequence[tuple[float, float]], *, kind: str, closed: bool = False) -> str:
    """A line through points."""
    middle = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{middle}{" Z" if closed else ""}" class="{kind}"/>'


def marker(x: float, y: float, run: int, *, size: float = 5, tip: str = "") -> str:
    """The mark of the ``run``-th run; shapes differ too, for readers who confuse the colours."""
    s, kind = size, f"mark c{run % COLOURS}"
    corners = {
        1: [(-s, -s), (s, -s), (s, s), (-s, s)],
        2: [(0, -1.3 * s), (1.2 * s, s), (-1.2 * s, s)],
        3: [(0, -1.4 * s), (1.4 * s, 0), (0, 1.4 * s), (-1.4 * s, 0)],
        4: [(0, 1.3 * s), (1.2 * s, -s), (-1.2 * s, -s)],
        5: [(-s, -0.45 * s), (0, -1.3 * s), (s, -0.45 * s), (0.65 * s, s), (-0.65 * s, s)],
    }.get(run % 6)
    if corners is None:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{s}" class="{kind}">{_tip(tip)}</circle>'
    d = " L".join(f"{x + dx:.1f} {y + dy:.1f}" for dx, dy in corners)
    return f'<path d="M{d} Z" class="{kind}">{_tip(tip)}</path>'


def mark(run: int) -> str:
    """The mark of the ``run``-th run as an image for tables and legends."""
    return drawing([marker(7, 7, run)], alt="", width=14, height=14)


def _tip(content: str) -> str:
    return f"<title>{html_text(content)}</title>" if content else ""


def axes(
    x: Scale,
    y: Scale,
    *,
    x_title: str,
    y_title: str,
    x_ticks: Sequence[float] | None = None,
) -> str:
    """Grid lines, tick labels and titles of a plot."""
    parts = []
    for tick in nice_ticks(y.low, y.high):
        kind = "axis" if tick in (y.low, 0) else "grid"
        parts += [line(LEFT, y(tick), RIGHT, y(tick), kind=kind)]
        parts += [text(LEFT - 6, y(tick) + 4, brief(tick), anchor="end", kind="tick")]
    for tick in nice_ticks(x.low, x.high) if x_ticks is None else x_ticks:
        parts += [line(x(tick), BOTTOM, x(tick), BOTTOM + 4, kind="axis")]
        parts += [text(x(tick), BOTTOM + 18, brief(tick), anchor="middle", kind="tick")]
    parts += [text((LEFT + RIGHT) / 2, HEIGHT - 8, x_title, anchor="middle", kind="label")]
    parts += [text(LEFT - 34, 12, y_title, kind="label")]
    return "".join(parts)


def drawing(parts: Sequence[str], *, alt: str, width: int = WIDTH, height: int = HEIGHT) -> str:
    """A whole SVG image; ``alt`` is for screen readers."""
    box = f'viewBox="0 0 {width} {height}" overflow="visible"'
    label = f'role="img" aria-label="{html_text(alt)}"'
    return f"<svg {box} {label}>{''.join(parts)}</svg>"
