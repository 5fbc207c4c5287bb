"""Plots of papers' figures: positions worked by hand, and files that are whole XML."""

import re
from xml.etree import ElementTree

from jaxrag.evaluation.report import plots, svg
from jaxrag.evaluation.report.plots import Curve
from jaxrag.evaluation.significance import Interval


def test_bars_stand_on_zero_and_whiskers_reach_the_interval() -> None:
    # y from 0 to 1 over pixels 244 to 28: 0.25 is at 244 - 54 = 190, 0.5 at 136, 1 at 28
    panel = plots.bars("b", {"nq": [Interval(0.25, 0.0, 0.5, 9)]}, y_title="EM", y=(0, 1))
    rect = re.search(r'<rect x="[\d.]+" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', panel.drawn)
    assert rect is not None and rect.groups() == ("190.0", "54.0")
    assert 'y1="244.0"' in panel.drawn and 'y2="136.0"' in panel.drawn


def test_curves_on_a_logarithmic_axis() -> None:
    # 0.1 is the middle of 0.01 to 1: (40 + 388) / 2 = 214
    panel = plots.curves(
        "c", [Curve([0.01, 0.1, 1], [0, 1, 0])], x_title="x", y_title="y", log_x=True
    )
    assert "214.0 28.0" in panel.drawn and ">0.1<" in panel.drawn


def test_ticks_of_a_short_logarithmic_axis() -> None:
    # one power of ten lies between 0.3 and 7: its neighbours 0.5, 2 and 5 are named too
    short = Curve([0.3, 7], [0, 1])
    panel = plots.curves("c", [short], x_title="x", y_title="y", y=(0, 1), log_x=True)
    assert re.findall(r'y="262.0"[^>]*>([\d.]+)<', panel.drawn) == ["0.5", "1", "2", "5"]


def test_whole_numbers_have_no_ticks_between_them() -> None:
    # 1 to 3 in at most six ticks is 1, 1.5, 2, ...: epochs have no halves
    def ticks(x: list[float]) -> list[str]:
        panel = plots.curves("c", [Curve(x, [0, 1])], x_title="x", y_title="y", y=(0, 1))
        return re.findall(r'y="262.0"[^>]*>([\d.]+)<', panel.drawn)

    assert ticks([1, 3]) == ["1", "2", "3"]
    assert ticks([1, 2.5]) == ["1", "1.5", "2", "2.5"]


def test_a_panels_title_stands_clear_of_its_axis_title() -> None:
    # the axis title's baseline is at 12 in a panel, letters are 13 pixels high
    text = plots.sheet("s", [plots.histogram("name", [1], x_title="x", edges=[0, 1])])
    (y,) = re.findall(r'y="(-?\d+)\.0"[^>]*>name<', text)
    assert 12 - int(y) >= 16


def test_long_names_of_groups_are_broken_into_lines() -> None:
    # four groups in 348 pixels: 87 each, 14 letters of 6.2
    one = [Interval(0.25, 0.0, 0.5, 9)]
    groups = {"nq": one, "factbook (for webq, triviaqa)": one, "squad": one, "popqa": one}
    panel = plots.bars("b", groups, y_title="EM")
    lines = re.findall(r'x="170.5" y="(\d+)\.0"[^>]*>([^<]+)<', panel.drawn)
    assert lines == [("262", "factbook (for"), ("275", "webq,"), ("288", "triviaqa)")]


def test_histogram_and_scatter() -> None:
    panel = plots.histogram("h", [1, 4], x_title="rank", labels=["0", "1+"])
    assert f'height="{svg.BOTTOM - svg.TOP:.1f}"' in panel.drawn  # 4 of at most 4
    dots = plots.scatter("s", [[(0, 0)], [(1, 1)]], x_title="x", y_title="y")
    assert 'cx="40.0" cy="244.0"' in dots.drawn and 'cx="388.0" cy="28.0"' in dots.drawn


def test_a_sheet_is_a_file_with_a_legend_and_names_are_escaped() -> None:
    panel = plots.histogram("a & b", [1], x_title="x", edges=[0, 1])
    text = plots.sheet("<Figure>", [panel, panel], ["one & two"], columns=1)
    root = ElementTree.fromstring(text)
    height = float(root.attrib["height"])
    assert height > 2 * svg.HEIGHT  # two rows
    assert "one &amp; two" in text and "&lt;Figure&gt;" in text


def test_series_without_points_are_left_out() -> None:
    panel = plots.curves("c", [None, Curve([0, 1], [1, 1])], x_title="x", y_title="y")
    assert "curve c1" in panel.drawn and "curve c0" not in panel.drawn
    assert plots.bars("b", {"nq": [None]}, y_title="EM").drawn == ""
