"""Scales, ticks and escaping of the drawings."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrag.evaluation.report import svg


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (0.37, 0.4), (1, 1), (2.1, 2.5), (439, 500), (0.083, 0.1), (7, 8)]
)
def test_tops_are_round(value: float, top: float) -> None:
    assert svg.nice_top(value) == pytest.approx(top)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_and_inside(low: float, span: float) -> None:
    ticks = svg.nice_ticks(low, low + span)
    slack = 1e-6 * (abs(low) + span)
    assert 1 <= len(ticks) <= 6
    assert all(low - slack <= tick <= low + span + slack for tick in ticks)


def test_drawings_are_xml_and_text_is_escaped() -> None:
    nasty = '</svg><script>alert("x")</script>'
    parts = [svg.text(1, 2, nasty), svg.rect(0, 0, -1, 2, kind="a", tip=nasty)]
    parts += [svg.marker(1, 2, run, tip=nasty) for run in range(9)]
    parts += [svg.path([(0, 0), (1, 1)], kind="b", closed=True), svg.line(0, 0, 1, 1, kind="c")]
    parts += [svg.axes(svg.x_scale(0, 4), svg.y_scale(0, 100), x_title=nasty, y_title="y")]
    root = ElementTree.fromstring(svg.drawing(parts, alt=nasty))
    assert root.attrib["aria-label"] == nasty and not root.findall(".//script")
    shapes = [str(sorted(e.attrib.items())) for e in root if "mark" in e.attrib.get("class", "")]
    assert len(set(shapes)) == 9  # colour and shape together tell runs apart
