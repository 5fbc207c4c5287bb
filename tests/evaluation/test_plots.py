"""Plots of papers' figures: values that are drawn, text that is text, and labels that fit."""

import functools
import importlib.util
import itertools
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from experiments import reproduce
from jaxrag.evaluation.report import plots
from jaxrag.evaluation.report.plots import Curve
from jaxrag.evaluation.significance import Interval
from jaxrag.types import InputError

ONE = Interval(0.25, 0.0, 0.5, 9)


def drawn(plot: Callable[..., None], **settings: Any) -> Any:
    """The axes of a plot, after a sheet with it alone was made."""
    held: list[Any] = []

    def panel(axes: Any) -> None:
        held.append(axes)
        plot(axes, **settings)

    plots.sheet("a sheet", [panel])
    return held[0]


def ticks(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels() if label.get_text()]


def overlap(texts: list[Any]) -> bool:
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    return any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_bars_stand_on_zero_and_whiskers_reach_the_interval() -> None:
    groups = {"nq": {"a": ONE, "b": Interval(1.0, 1.0, 1.0, 7)}, "squad": {"a": ONE._replace(n=0)}}
    axes = drawn(plots.bars, groups=groups, y_title="EM", y=(0, 1))
    assert [(bar.get_y(), bar.get_height()) for bar in axes.patches] == [(0, 0.25), (0, 1.0)]
    (whisker,) = axes.collections  # the second bar has no interval
    assert whisker.get_segments()[0][:, 1].tolist() == [0.0, 0.5]
    assert ticks(axes)[0] == "nq\nn = 9, 7" and axes.get_ylim() == (0, 1)


def test_long_names_of_groups_are_broken_into_lines_that_do_not_overlap() -> None:
    names = ("nq", "factbook (for webq, triviaqa)", "squad", "popqa", "hotpotqa", "2wiki")
    groups = {name: {"a": ONE, "b": ONE._replace(n=1234)} for name in names}
    axes = drawn(plots.bars, groups=groups, y_title="EM")
    assert not overlap(axes.get_xticklabels())


def test_curves_have_their_points_and_bands() -> None:
    curve = Curve([0.01, 0.1, 1], [0, 1, 0], [-1, 0, -1], [1, 2, 1])
    axes = drawn(plots.curves, series=[None, curve], x_title="u, nats", y_title="EM, %", log_x=True)
    (line, zero) = axes.lines
    assert line.get_xydata().tolist() == [[0.01, 0], [0.1, 1], [1, 0]]
    assert line.get_color() == "C1" and zero.get_ydata() == [
        0,
        0,
    ]  # a line where values are below 0
    (band,) = axes.collections
    assert band.get_datalim(axes.transData).extents.tolist() == [0.01, -1, 1, 2]
    assert axes.get_xscale() == "log" and {"0.01", "0.1", "1"} <= {*ticks(axes)}


def test_ticks_of_a_short_logarithmic_axis() -> None:
    # one power of ten lies between 0.3 and 7: its neighbours 0.5, 2 and 5 are named too
    curve = Curve([0.3, 7], [0, 1])
    axes = drawn(plots.curves, series=[curve], x_title="x", y_title="y", log_x=True)
    assert {"0.5", "1", "2", "5"} <= {*ticks(axes)} and not overlap(axes.get_xticklabels())


def test_whole_numbers_have_no_ticks_between_them() -> None:
    axes = drawn(plots.curves, series=[Curve([1, 3], [0, 1])], x_title="epoch", y_title="y")
    assert ticks(axes) == ["1", "2", "3"]


def test_histogram_and_scatter() -> None:
    counts = {**{str(rank): rank for rank in range(20)}, "20+": 7}
    axes = drawn(plots.histogram, title="ranks", counts=counts, x_title="rank")
    assert [bar.get_height() for bar in axes.patches] == [*range(20), 7]
    assert "n = 197" in axes.get_ylabel() and not overlap(axes.get_xticklabels())
    axes = drawn(plots.histogram, title="h", counts=[1, 4], edges=[0.5, 0.6, 0.7], x_title="cosine")
    assert [bar.get_x() for bar in axes.patches] == [0.5, 0.6]
    clouds = [[(0.0, 0.0)], [], [(1.0, 1.0)]]
    axes = drawn(plots.scatter, title="s", clouds=clouds, x_title="x", y_title="y", limits=(-2, 2))
    assert axes.lines[2].get_xydata().tolist() == [[1, 1]] and axes.get_ylim() == (-2, 2)


def test_a_sheet_is_a_file_with_text_and_a_legend_and_names_are_escaped() -> None:
    long = "tiny (for boolq, hotpotqa, medmcqa, strategyqa), lambda 0.01 & <more>: mean 4.2"
    panel = functools.partial(plots.histogram, title=long, counts={"1": 1}, x_title="K")
    text = plots.sheet("<Figure>", [panel] * 3, ["one & two", "b"])
    root = ElementTree.fromstring(text)
    assert (root.attrib["width"], float(root.attrib["height"]) > 2 * plots.HEIGHT) == ("800", True)
    words = "".join(root.itertext())
    assert {"<Figure>", "one & two"} <= {(e.text or "").strip() for e in root.iter()}
    assert "tiny (for boolq" in words and "<more>: mean 4.2" in words  # in two lines
    assert text == plots.sheet("<Figure>", [panel] * 3, ["one & two", "b"])  # equal bytes
    assert "date" not in text.lower() and text.count("http") == 1  # the namespace


def test_dark_pages_replace_every_colour() -> None:
    panel = functools.partial(plots.bars, groups={"nq": {"a": ONE, "b": ONE}}, y_title="EM")
    text = plots.sheet("t", [panel], ["a", "b"])
    style, _, rest = text.partition("</style>")
    used = set(re.findall(r"(?:fill|stroke): (#\w{6})", rest))
    assert used and all(f': {colour}"]' in style for colour in used)


def test_without_matplotlib_a_command_that_draws_ends_before_it_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in ("dtr/figure3", "pairs/figure10"):
        with pytest.raises(InputError, match=r"pip install 'jaxrag\[figures\]'"):
            reproduce.main(["", name, "--scale=tiny"])
    assert reproduce.main(["", "dtr/figure3", "--scale=tiny", "--check"]) == 0
