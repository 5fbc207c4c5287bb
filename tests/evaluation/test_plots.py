"""Plots of papers' figures: values that are drawn, text that is text, and labels that fit."""

import importlib.util
import itertools
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from jaxrag.evaluation.report import plots
from jaxrag.evaluation.report.plots import Curve, Panel
from jaxrag.evaluation.significance import Interval
from jaxrag.experiments import reproduce
from jaxrag.types import InputError

ONE = Interval(0.25, 0.0, 0.5, 9)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Calls a function that draws; returns the axes of its last panel."""
    from matplotlib.figure import Figure

    held: list[Any] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda f, *a, **k: (save(f, *a, **k), held.append(f)))

    def draw(plot: Callable[..., str], *values: Any, **settings: Any) -> Any:
        plot("a title", *values, **settings)
        return held[-1].axes[-1]

    return draw


def ticks(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels() if label.get_text()]


def overlap(texts: list[Any]) -> bool:
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    return any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_bars_stand_on_zero_and_whiskers_reach_the_interval(drawn: Any) -> None:
    groups = {"nq": {"a": ONE, "b": Interval(1.0, 1.0, 1.0, 7)}, "squad": {"a": ONE._replace(n=0)}}
    axes = drawn(plots.bars, groups, legend=["a", "b"], y_title="EM")
    assert [(bar.get_y(), bar.get_height()) for bar in axes.patches] == [(0, 0.25), (0, 1.0)]
    (whisker,) = axes.collections  # the second bar has no interval
    assert whisker.get_segments()[0][:, 1].tolist() == [0.0, 0.5]
    assert ticks(axes)[0] == "nq\nn = 9, 7"


def test_long_names_of_groups_are_broken_into_lines_that_do_not_overlap(drawn: Any) -> None:
    names = ("nq", "factbook (for webq, triviaqa)", "squad", "popqa", "hotpotqa", "2wiki")
    groups = {name: {"a": ONE, "b": ONE._replace(n=1234)} for name in names}
    axes = drawn(plots.bars, groups, legend=["a", "b"], y_title="EM")
    assert not overlap(axes.get_xticklabels())


def test_curves_have_their_points_and_bands(drawn: Any) -> None:
    curve = Curve([0.01, 0.1, 1], [0, 1, 0], [-1, 0, -1], [1, 2, 1])
    panels = [Panel("a", "EM, %", {"first": curve}), Panel("b", "EM, %", {"second": curve})]
    axes = drawn(plots.curves, panels, x_title="u, nats", log_x=True)
    line, zero = axes.lines
    assert line.get_xydata().tolist() == [[0.01, 0], [0.1, 1], [1, 0]]
    assert line.get_color() == "C1"  # one colour a label, in all panels
    assert list(zero.get_ydata()) == [0, 0]
    (band,) = axes.collections
    assert band.get_paths()[0].get_extents().extents.tolist() == [0.01, -1, 1, 2]
    assert axes.get_xscale() == "log" and {"0.01", "0.1", "1"} <= {*ticks(axes)}


def test_ticks_of_a_short_logarithmic_axis(drawn: Any) -> None:
    # one power of ten lies between 0.3 and 7: its neighbours 0.5, 2 and 5 are named too
    panel = Panel("a", "y", {"b": Curve([0.3, 7], [0, 1])})
    axes = drawn(plots.curves, [panel], x_title="x", log_x=True)
    assert {"0.5", "1", "2", "5"} <= {*ticks(axes)} and not overlap(axes.get_xticklabels())


def test_whole_numbers_have_no_ticks_between_them(drawn: Any) -> None:
    panel = Panel("a", "y", {"b": Curve([1, 3], [0, 1])})
    names = ticks(drawn(plots.curves, [panel], x_title="epoch"))
    assert {"1", "2", "3"} <= {*names} and all("." not in name for name in names)


def test_histograms_and_clouds(drawn: Any) -> None:
    counts = {**{str(rank): rank for rank in range(20)}, "20+": 7}
    axes = drawn(plots.histograms, {"hotpotqa": counts}, x_title="rank")
    assert [bar.get_height() for bar in axes.patches] == [*range(20), 7]
    assert "n = 197" in axes.get_ylabel() and not overlap(axes.get_xticklabels())
    bins = np.array([[0.5, 0.6], [1, 4]])
    axes = drawn(plots.histograms, {"hotpotqa": bins}, x_title="cosine")
    assert [bar.get_x() for bar in axes.patches] == [0.5, 0.6]
    clouds = {"a": np.zeros((1, 2)), "none": np.zeros((0, 2)), "c": np.full((3, 2), -2.0)}
    axes = drawn(plots.clouds, {"nq": clouds}, x_title="x", y_title="y", around_origin=True)
    assert axes.lines[2].get_xydata().tolist() == [[-2, -2]] * 3 and axes.get_ylim() == (-2, 2)
    assert not overlap(axes.get_xticklabels())


def test_a_file_has_text_and_a_legend_and_names_are_escaped() -> None:
    long = "tiny (for boolq, hotpotqa, medmcqa, strategyqa), lambda 0.01 & <more>: mean 4.2"
    curves = {"one & two": Curve([1, 2], [0, 1]), "b": Curve([1, 2], [1, 1])}
    panels = [Panel(long, "y", curves)] * 3
    text = plots.curves("<Figure>", panels, x_title="K")
    root = ElementTree.fromstring(text)
    assert (root.attrib["width"], float(root.attrib["height"]) > 2 * plots.HEIGHT) == ("800", True)
    words = " ".join(" ".join(root.itertext()).split())
    assert "<Figure>" in words and "one & two" in words
    assert "tiny (for boolq" in words and "mean 4.2" in words  # in two lines
    assert text == plots.curves("<Figure>", panels, x_title="K")  # equal bytes
    assert "date" not in text.lower() and text.count("http") == 1  # the namespace


def test_dark_pages_replace_every_colour() -> None:
    text = plots.bars("t", {"nq": {"a": ONE, "b": ONE}}, legend=["a", "b"], y_title="EM")
    style, _, rest = text.partition("</style>")
    used = set(re.findall(r"(?:fill|stroke): (#\w{6})", rest))
    assert used and all(f': {colour}"]' in style for colour in used)


def test_without_matplotlib_a_command_that_draws_ends_before_it_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else there(name)
    )
    for name in ("dtr/figure3", "pairs/figure10"):
        with pytest.raises(InputError, match=r"pip install 'jaxrag\[figures\]'"):
            reproduce.main(["", name, "--scale=tiny"])
    assert reproduce.main(["", "dtr/figure3", "--scale=tiny", "--check"]) == 0
