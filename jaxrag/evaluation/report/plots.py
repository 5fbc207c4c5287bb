"""Papers' figures by matplotlib: curves, groups of bars, histograms and clouds of points, as SVG.

Text stays text, equal numbers give equal bytes, and colours are the report's light ones, which a
style sheet in the drawing replaces on dark pages. Matplotlib is an extra, imported when needed.
"""

from __future__ import annotations

import importlib.util
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from jaxrag.core.printable import html_text
from jaxrag.evaluation.report.document import colours
from jaxrag.evaluation.significance import Interval
from jaxrag.types import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 400, 300  # of a panel, in pixels
MISSING = "figures are drawn by matplotlib, which is not installed: pip install 'jaxrag[figures]'"
_LETTER = 7.2  # mean width of a letter, in pixels

T = TypeVar("T")
Range = tuple[float, float]
Values = Sequence[float] | Float[np.ndarray, " p"]


class Curve(NamedTuple):
    """Points to be joined, in order, with an optional band around them."""

    x: Values
    y: Values
    low: Values = ()
    high: Values = ()


class Panel(NamedTuple):
    """A panel of curves: its title, the title of its y axis, and the curves by label."""

    title: str
    y_title: str
    curves: Mapping[str, Curve]


def has_matplotlib() -> bool:
    """Whether figures can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def check_matplotlib() -> None:
    """Raises InputError if figures cannot be drawn."""
    if not has_matplotlib():
        raise InputError(MISSING)


def curves(
    title: str,
    panels: Sequence[Panel],
    *,
    x_title: str,
    x: Range | None = None,
    log_x: bool = False,
    legend: Sequence[str] = (),
) -> str:
    """An SVG file with a line through the points of each curve; ``legend`` replaces the labels."""
    labels = list(dict.fromkeys(label for panel in panels for label in panel.curves))

    def draw(axes: Axes, panel: Panel) -> None:
        draw_curves(axes, {labels.index(name): curve for name, curve in panel.curves.items()})
        if log_x:
            _label_decades(axes)
        axes.set(title=panel.title, xlabel=x_title, ylabel=panel.y_title, xlim=x)

    return _file(title, draw, panels, legend or labels)


def draw_curves(axes: Axes, by_number: Mapping[int, Curve]) -> None:
    """Curves by the numbers of their colours; short ones with marks, whole numbers as ticks."""
    from matplotlib.ticker import MaxNLocator

    for i, (x, y, low, high) in by_number.items():
        look: Any = series_style(i) | ({} if len(x) <= 12 else {"marker": ""})
        axes.plot(x, y, **look, clip_on=False)
        if len(low):
            axes.fill_between(x, low, high, color=look["color"], alpha=0.1, linewidth=0)
    every = [float(value) for curve in by_number.values() for value in curve.x]
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=all(map(float.is_integer, every))))
    if axes.get_ylim()[0] < 0:
        axes.axhline(0, color=colours()[0]["faint"], linewidth=1)


def _label_decades(axes: Axes) -> None:
    """A logarithmic x axis with labels at powers of ten, below two decades at 1, 2 and 5."""
    from matplotlib import ticker

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    subs = (1.0,) if high >= 100 * low else (1.0, 2.0, 5.0)
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=subs))
    axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())


def bars(
    title: str, groups: Mapping[str, Mapping[str, Interval]], *, legend: Sequence[str], y_title: str
) -> str:
    """Bars with intervals by group and series, and below a group how many questions they have."""

    def draw(axes: Axes, groups: Mapping[str, Mapping[str, Interval]]) -> None:
        labels = []
        for place, (name, group) in enumerate(groups.items()):
            wide = 0.76 / len(group)
            for i, bar in enumerate(group.values()):
                at = place + wide * (i - (len(group) - 1) / 2)
                if bar.n:
                    axes.bar(at, bar.mean, 0.95 * wide, color=f"C{i % 8}")
                if bar.n and bar.low != bar.high:
                    axes.vlines(at, bar.low, bar.high, color=colours()[0]["ink"], linewidth=1.3)
            counts = [f"{bar.n:,}" for bar in group.values()]
            counts = counts if len({*counts}) > 1 else counts[:1]
            letters = max(int(0.85 * WIDTH / len(groups) / _LETTER), 1)
            texts = name, f"n = {', '.join(counts)}"
            labels.append("\n".join(textwrap.fill(text, letters) for text in texts))
        axes.set_xticks(range(len(groups)), labels)
        axes.tick_params(axis="x", length=0)
        axes.set(ylabel=y_title)

    return _file(title, draw, [groups], legend)


def histograms(
    title: str, panels: Mapping[str, Mapping[str, int] | Float[np.ndarray, "2 b"]], *, x_title: str
) -> str:
    """Counts as bars: by label, or by the left edges of bins of one width; by panel."""
    from matplotlib.ticker import MaxNLocator

    def draw(axes: Axes, panel: tuple[str, Any]) -> None:
        name, counts = panel
        fill = colours()[0]["right"]
        if isinstance(counts, Mapping):
            places, values = np.arange(len(counts)), list(counts.values())
            axes.bar(places, values, 0.96, color=fill)
            step = 1 + len(counts) // 12  # more labels would touch
            axes.set_xticks(places[::step], list(counts)[::step])
        else:
            left, values = counts
            axes.bar(left, values, 0.96 * (left[1] - left[0]), align="edge", color=fill)
            axes.locator_params(axis="x", nbins=6)
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set(title=name, xlabel=x_title, ylabel=f"frequency, n = {int(np.sum(values)):,}")

    return _file(title, draw, [*panels.items()])


def clouds(
    title: str,
    panels: Mapping[str, Mapping[str, Float[np.ndarray, "p 2"]]],
    *,
    x_title: str,
    y_title: str,
    around_origin: bool = False,
) -> str:
    """An SVG file of points, a colour for each cloud; two points are joined by a line.

    ``panels`` are clouds by label, by title. With ``around_origin`` both axes have the same limits
    on both sides of 0.
    """

    def draw(axes: Axes, panel: tuple[str, Mapping[str, Float[np.ndarray, "p 2"]]]) -> None:
        name, by_label = panel
        for i, points in enumerate(by_label.values()):
            if len(points) == 2:
                axes.plot(*points.T, color=f"C{i}")
            else:
                axes.plot(*points.T, ".", color=f"C{i}", alpha=0.6, markersize=4)
        reach = max(float(np.abs(points).max(initial=0)) for points in by_label.values())
        limits = (-reach, reach) if around_origin else None
        axes.locator_params(nbins=6)
        axes.set(title=name, xlabel=x_title, ylabel=y_title, xlim=limits, ylim=limits)

    return _file(title, draw, [*panels.items()], list(next(iter(panels.values()))))


def _file(
    title: str, draw: Callable[[Axes, T], object], panels: Sequence[T], legend: Sequence[str] = ()
) -> str:
    """An SVG file: the title, the panels in two columns, and one legend."""
    width, height, drawn = elements(draw, panels, legend, title=title, columns=2)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{html_text(title)}">{drawn}</svg>\n'
    )


def elements(
    draw: Callable[[Axes, T], object],
    panels: Sequence[T],
    legend: Sequence[str] = (),
    *,
    title: str = "",
    columns: int = 1,
    height: int = HEIGHT,
) -> tuple[int, int, str]:
    """Width and height of a drawing in pixels, and its SVG elements.

    ``draw`` draws a panel on matplotlib's axes; panels are ``height`` pixels high, in rows of at
    most ``columns``.
    """
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width = columns * WIDTH
    longest = max(map(len, legend), default=0)
    beside = max(1, min(len(legend), int(width / (40 + _LETTER * longest))))
    full = rows * height + 22 * -(-len(legend) // beside) + 26 * bool(title)
    light, dark = colours()
    with style.context(["default", _style(light)]):
        figure = Figure((width / 72, full / 72), dpi=72, layout="constrained")
        for place, axes in enumerate(figure.subplots(rows, columns, squeeze=False).flat):
            if place == len(panels):
                axes.set_axis_off()
                break
            draw(axes, panels[place])
            axes.set_title(textwrap.fill(axes.get_title("left"), int(WIDTH / _LETTER) - 8))
        if title:
            figure.suptitle(textwrap.fill(title, width // 9), x=0.01, ha="left")
        if legend:
            marks = [Line2D([], [], **series_style(i), linestyle="") for i in range(len(legend))]
            figure.legend(marks, legend, loc="outside lower left", ncols=beside)
        file = io.StringIO()
        about = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=about)
    _, _, inner = file.getvalue().partition("<svg ")[2].partition(">\n")
    inner = inner.rpartition("</svg>")[0].replace("xlink:href", "href")
    rules = "".join(
        f'[style*="{attribute}: {light[name]}"]{{{attribute}:{dark[name]}!important}}'
        for name in light
        for attribute in ("fill", "stroke")
        if f"{attribute}: {light[name]}" in inner
    )
    return width, full, f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>{inner}"


def _style(light: Mapping[str, str]) -> dict[str, Any]:
    """Settings of matplotlib; at 72 dots per inch a point is a pixel."""
    from cycler import cycler

    ink, soft, paper = light["ink"], light["soft"], light["paper"]
    series = [light[f"c{i}"] for i in range(8)]
    return {
        "svg.fonttype": "none", "svg.hashsalt": "jaxrag",
        "font.size": 11.5, "axes.labelsize": 11.5, "axes.titlesize": 12, "figure.titlesize": 14,
        "axes.titleweight": "bold", "figure.titleweight": "bold", "axes.titlelocation": "left",
        "text.color": ink, "axes.titlecolor": ink, "axes.labelcolor": soft,
        "xtick.labelcolor": soft, "ytick.labelcolor": soft,
        "xtick.color": light["faint"], "axes.edgecolor": light["faint"], "ytick.major.size": 0,
        "axes.spines.left": False, "axes.spines.top": False, "axes.spines.right": False,
        "axes.grid": True, "axes.grid.axis": "y", "grid.color": light["grid"],
        "axes.axisbelow": True, "axes.facecolor": paper, "figure.facecolor": paper,
        "axes.prop_cycle": cycler(color=series), "lines.linewidth": 2,
        "lines.solid_capstyle": "round", "legend.frameon": False, "legend.handletextpad": 0.3,
        "figure.constrained_layout.w_pad": 0.16, "figure.constrained_layout.h_pad": 0.12,
    }  # fmt: skip


def series_style(number: int) -> dict[str, Any]:
    """Colour and mark of a series; marks differ, too, for readers who confuse the colours."""
    return {"color": f"C{number % 8}", "marker": "os^Dvp"[number % 6], "markersize": 5}
