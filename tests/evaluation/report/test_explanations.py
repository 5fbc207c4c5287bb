"""Matches of SiDR as lines, tables and figures."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from jaxrag.evaluation.report import explanations
from jaxrag.evaluation.report.page import write_report
from jaxrag.retrieval.sidr.explain import Match, Term
from jaxrag.types import Passage
from tests.evaluation import fabricate

NASTY = fabricate.NASTY
# weights 2 x 3, 4 x 1, 1 x 1.5 and 0.5 x 1: products 6, 4, 1.5, 0.5 of 12
MATCH = Match(
    f"Which river {NASTY}?",
    Passage("p1", f"[b]Rivers {NASTY}", "The Nile."),
    12.0,
    (
        Term("river", 2.0, 3.0, 0.5, True, True),
        Term("##s[/b]", 4.0, 1.0, 1 / 3, False, True),
        Term("stream" * 5, 1.0, 1.5, 0.125, False, False),
        Term("which", 0.5, 1.0, 1 / 24, True, False),
    ),
)


def line(most: int = 9) -> dict[str, Any]:
    return explanations.line("q1", "late", MATCH, most=most)


def test_a_line_holds_the_largest_terms() -> None:
    found = line(2)
    assert [term["token"] for term in found["tokens"]] == ["river", "##s[/b]"]
    assert found["others"] == 2 and found["score"] == 12 and found["search"] == "late"
    assert found["tokens"][0] == {
        "token": "river", "query": 2, "passage": 3, "share": 0.5,
        "in_query": True, "in_passage": True,
    }  # fmt: skip
    assert found["passage"] == {"id": "p1", "title": MATCH.passage.title}


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert explanations.read(tmp_path) == []
    explanations.write(tmp_path, [line(), {**line(1), "question_id": "q2"}])
    assert explanations.read(tmp_path) == [line(), {**line(1), "question_id": "q2"}]
    explanations.write(tmp_path, [line(2)])  # in place of the earlier ones
    assert explanations.read(tmp_path) == [line(2)]


def test_the_table_has_marks_weights_and_shares() -> None:
    console = Console(width=110)
    with console.capture() as capture:
        console.print(explanations.table(line(2)))
    text = capture.get()
    assert "[b]Rivers" in text and "##s[/b]" in text
    cells = next(row for row in text.split("\n") if "##s" in row).split()
    assert cells == ["##s[/b]", "yes", "4", "1", "33.33"]
    # 6 + 4 of 12
    note = "Score 12.0 (late search): 83 % of it comes from these 2 tokens; the rest from 2 others."
    assert note in text


def test_the_figure_is_in_proportion() -> None:
    drawn = ElementTree.fromstring(explanations.figure(line()))
    bars = list(drawn.iter("rect"))
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert [width / widths[0] for width in widths] == pytest.approx([1, 2 / 3, 1 / 4, 1 / 12], 0.01)
    assert [bar.attrib["class"] for bar in bars] == ["right", "wrong", "wrong", "wrong"]
    tips = [bar.findtext("title") or "" for bar in bars]
    assert tips[0] == "river: 2 × 3, in question and passage"
    assert [tip.rpartition("in ")[2] for tip in tips[1:3]] == ["passage", "neither text"]
    named = [e.text for e in drawn.iter("text") if e.attrib["class"] == "name"]
    assert named == ["river", "##s[/b]", "streamstreamstr…", "which"]
    ends = [float(bar.attrib["x"]) + width for bar, width in zip(bars, widths, strict=True)]
    assert max(ends) + 44 <= 400 and not drawn.findall(".//script")
    shown = [e.text for e in drawn.iter("text") if e.attrib["class"] == "tick"]
    assert shown == ["50.00", "33.33", "12.50", "4.17"]
    (box,) = (e.attrib["viewBox"] for e in drawn.iter("svg"))
    lowest = max(float(bar.attrib["y"]) + float(bar.attrib["height"]) for bar in bars)
    assert lowest <= float(box.split()[3])
    assert explanations.figure({**line(), "tokens": []}) == ""


def test_a_figure_of_many_terms_shows_the_first() -> None:
    terms = tuple(Term(f"t{i}", 1.0, 1.0, 0.02, True, True) for i in range(50))
    many = explanations.line("q1", "beta", MATCH._replace(terms=terms), most=20)
    drawn = explanations.figure(many)
    assert len(ElementTree.fromstring(drawn).findall(".//rect")) == explanations.DRAWN
    assert "24 % of it comes from these 12 tokens; the rest from 38 others" in drawn


def test_the_report_draws_what_is_kept(tmp_path: Path) -> None:
    path = fabricate.run(tmp_path / "run", "standard_rag", n=12)
    write_report([path], tmp_path / "without.html")
    assert "Which tokens matched" not in (tmp_path / "without.html").read_text()
    explanations.write(path, [line()])
    write_report([path], tmp_path / "with.html")
    page = (tmp_path / "with.html").read_text()
    assert "Which tokens matched: standard_rag" in page and NASTY not in page
    assert page.count("share of the score, %") == 1
