"""Papers' figures by matplotlib: curves, groups of bars, histograms and clouds of points, as SVG.

A panel is a function that draws on matplotlib's axes; the others of this module are bound to their
data by `functools.partial`. The i-th series of every panel has the same colour and mark, named once
in the legend. Text stays text, equal numbers give equal bytes, and colours are the report's light
ones, which a style sheet in the drawing replaces on dark pages.

Matplotlib, the extra ``figures``, is imported when something is drawn.
"""

from __future__ import annotations

import importlib.util
import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.core.printable import html_text
from jaxrag.evaluation.report.document import colours
from jaxrag.evaluation.significance import Interval
from jaxrag.types import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = 8
WIDTH, HEIGHT = 400, 300  # of a panel, in pixels
_LETTER = 7.2  # mean width of a letter, in pixels
MISSING = "figures are drawn by matplotlib, which is not installed: pip install 'jaxrag[figures]'"

Panel = Callable[["Axes"], object]
Range = tuple[float, float]
Values = Sequence[float] | Float[np.ndarray, " p"]


class Curve(NamedTuple):
    """Points to be joined, in order, with an optional band around them."""

    x: Values
    y: Values
    low: Values = ()
    high: Values = ()


def has_matplotlib() -> bool:
    """Whether figures can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def check_matplotlib() -> None:
    """Refuses to go on without matplotlib.

    Raises:
      InputError: it is not installed.
    """
    if not has_matplotlib():
        raise InputError(MISSING)


def sheet(title: str, panels: Sequence[Panel], legend: Sequence[str] = ()) -> str:
    """A whole SVG file: the title, the panels in two columns, and one legend."""
    width, height, drawn = elements(panels, legend, title=title, columns=2)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{html_text(title)}">{drawn}</svg>\n'
    )


def elements(
    panels: Sequence[Panel],
    legend: Sequence[str] = (),
    *,
    title: str = "",
    columns: int = 1,
    height: int = HEIGHT,
) -> tuple[int, int, str]:
    """Width and height of a drawing in pixels, and its SVG elements.

    Args:
      panels: each ``height`` pixels high, in rows of at most ``columns``.
      legend: names of the series, below the panels.
      title: above them.
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
            panels[place](axes)
            axes.set_title(textwrap.fill(axes.get_title("left"), int(WIDTH / _LETTER) - 8))
        if title:
            figure.suptitle(title, x=0.01, ha="left")
        if legend:
            marks = [Line2D([], [], **series_style(i), linestyle="") for i in range(len(legend))]
            figure.legend(marks, legend, loc="outside lower left", ncols=beside)
        file = io.StringIO()
        about = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=about)
    _, _, inner = file.getvalue().partition("<svg ")[2].partition(">\n")
    inner = inner.rpartition("</svg>")[0].replace("xlink:href", "href")
    rules = "".join(
        f'[style*="{what}: {light[name]}"]{{{what}:{dark[name]}!important}}'
        for name in light
        for what in ("fill", "stroke")
        if f"{what}: {light[name]}" in inner
    )
    return width, full, f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>{inner}"


def _style(light: Mapping[str, str]) -> dict[str, Any]:
    """Settings of matplotlib; at 72 dots per inch a point is a pixel."""
    from cycler import cycler

    ink, soft, paper = light["ink"], light["soft"], light["paper"]
    series = [light[f"c{i}"] for i in range(COLOURS)]
    return {
        "svg.fonttype": "none", "svg.hashsalt": "jaxrag",
        "font.size": 11.5, "axes.labelsize": 11.5, "axes.titlesize": 12, "figure.titlesize": 15,
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
    return {"color": f"C{number % COLOURS}", "marker": "os^Dvp"[number % 6], "markersize": 5}


def curves(
    axes: Axes,
    *,
    series: Sequence[Curve | None],
    x_title: str,
    y_title: str,
    title: str = "",
    x: Range | None = None,
    log_x: bool = False,
) -> None:
    """A line through the points of each series; one that is None only uses up a colour."""
    from matplotlib import ticker

    for i, curve in enumerate(series):
        if curve is None:
            continue
        look = series_style(i)
        if len(curve.x) > 12:
            look["marker"] = ""
        axes.plot(curve.x, curve.y, **look, clip_on=False)
        if len(curve.low):
            axes.fill_between(
                curve.x, curve.low, curve.high, color=look["color"], alpha=0.1, linewidth=0
            )
    every = [value for curve in series if curve for value in curve.x]
    if log_x and every:
        axes.set_xscale("log")
        subs = (1.0,) if max(every) >= 100 * min(every) else (1.0, 2.0, 5.0)
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=subs))
        axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
    elif all(float(value).is_integer() for value in every):  # such as epochs
        axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
    if axes.get_ylim()[0] < 0:
        axes.axhline(0, color=colours()[0]["faint"], linewidth=1)
    axes.set(title=title, xlabel=x_title, ylabel=y_title, xlim=x)


def bars(
    axes: Axes,
    *,
    groups: Mapping[str, Mapping[str, Interval]],
    y_title: str,
    y: Range | None = None,
) -> None:
    """Bars with intervals, by group and series; a bar without questions is left out.

    Below a group's name stand the numbers of questions of its bars, once if they are equal.
    """
    labels = []
    for place, (name, group) in enumerate(groups.items()):
        for i, bar in enumerate(group.values()):
            if not bar.n:
                continue
            wide = 0.76 / len(group)
            at = place + wide * (i - (len(group) - 1) / 2)
            axes.bar(at, bar.mean, 0.95 * wide, color=series_style(i)["color"])
            if bar.low != bar.high:
                axes.vlines(at, bar.low, bar.high, color=colours()[0]["ink"], linewidth=1.3)
        counts = dict.fromkeys(f"{bar.n:,}" for bar in group.values() if bar.n)
        words = textwrap.wrap(name, max(int(0.85 * WIDTH / len(groups) / _LETTER), 1))
        labels.append("\n".join([*words, f"n = {', '.join(counts)}"]))
    axes.set_xticks(range(len(groups)), labels)
    axes.tick_params(axis="x", length=0)
    axes.set(ylabel=y_title, ylim=y)


def histogram(
    axes: Axes,
    *,
    title: str,
    counts: Sequence[int] | Mapping[str, int],
    x_title: str,
    edges: Sequence[float] = (),
) -> None:
    """Counts as bars, with ``edges`` (one more than counts) or their names below the bars."""
    from matplotlib.ticker import MaxNLocator

    labels = list(counts) if isinstance(counts, Mapping) else []
    values = list(counts.values() if isinstance(counts, Mapping) else counts)
    left = np.array(edges or range(len(values) + 1), np.float64)
    widths = 0.96 * np.diff(left)
    axes.bar(left[:-1], values, widths, align="edge", color=colours()[0]["right"])
    if labels:
        step = 1 + len(labels) // 12  # more labels would touch
        axes.set_xticks(np.arange(len(labels))[::step] + 0.48, labels[::step])
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set(title=title, xlabel=x_title, ylabel=f"frequency, n = {sum(values):,}")


def scatter(
    axes: Axes,
    *,
    title: str,
    clouds: Sequence[Sequence[tuple[float, float]] | Float[np.ndarray, "p 2"]],
    x_title: str,
    y_title: str,
    limits: Range | None = None,
    line: Sequence[tuple[float, float]] = (),
) -> None:
    """Points, a colour for each cloud, and a line through the points of ``line``.

    ``limits`` are those of both axes.
    """
    for i, cloud in enumerate(clouds):
        x, y = np.reshape(cloud, (-1, 2)).T
        axes.plot(x, y, ".", color=f"C{i}", alpha=0.6, markersize=4)
    if line:
        axes.plot(*zip(*line, strict=True), color=f"C{len(clouds)}")
    axes.set(title=title, xlabel=x_title, ylabel=y_title, xlim=limits, ylim=limits)
