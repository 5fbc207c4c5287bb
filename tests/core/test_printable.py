"""Escapes for terminals, HTML, SVG, Markdown, CSV and LaTeX: only the text is shown."""

import html
import io
import re
import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from jaxrag.core.printable import (
    csv_text,
    html_text,
    latex_text,
    markdown_text,
    printable,
    terminal_text,
)
from tests import hostile

BIDI = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
TEXTS = st.text(st.characters()) | st.text("\\`*_|~$[](){}<>&:/w.!#-=@ \n\r\t\x1b\x9b\u202e\udcff")
MARKDOWN = MarkdownIt("gfm-like", {"html": True, "linkify": False})


def controls(text: str) -> set[str]:
    """The characters of a text that command a terminal or reorder it."""
    return {
        c
        for c in text
        if (unicodedata.category(c) == "Cc" and c not in "\n\t")
        or unicodedata.bidirectional(c) in BIDI
    }


@given(TEXTS)
def test_printable_removes_what_controls_and_keeps_the_rest(text: str) -> None:
    found = printable(text)
    found.encode()
    assert not controls(found)
    assert found == printable(found)
    kept = [c for c in text if not controls(c) and c not in "\ufffe\uffff"]
    assert found == "".join("?" if "\ud800" <= c <= "\udfff" else c for c in kept)


@given(TEXTS)
def test_html_is_the_text_of_an_element_and_of_an_attribute(text: str) -> None:
    escaped = html_text(text)
    assert html.unescape(escaped) == printable(text) or "&" in text
    element = ElementTree.fromstring(f'<a b="{escaped}">{escaped}</a>')
    assert (element.text or "") == printable(text) and not list(element)
    # XML reads white space in an attribute as a space
    assert element.get("b") == printable(text).replace("\n", " ").replace("\t", " ")


@given(TEXTS)
def test_markdown_is_one_cell_of_the_text(text: str) -> None:
    table = f"| a | b |\n| --- | --- |\n| {markdown_text(text)} | end |\n"
    rows = [part.split("</td>")[0] for part in MARKDOWN.render(table).split("<td>")[1:]]
    assert len(rows) == 2 and rows[1] == "end"
    assert "<" not in rows[0]  # no emphasis, code, link, image or element
    shown = " ".join(html.unescape(rows[0]).split())
    assert shown == " ".join(printable(text).split())


@given(TEXTS)
def test_csv_is_one_line_and_no_formula(text: str) -> None:
    found = csv_text(text)
    line = printable(text).replace("\n", " ")
    assert found in (line, f"'{line}")
    assert not re.match(r"\s*[=+\-@]", found)


def test_csv_of_formulas() -> None:
    assert csv_text("=1+1") == "'=1+1" and csv_text(" \t@SUM(A1)") == "' \t@SUM(A1)"
    assert csv_text("＝1") == "'＝1"
    assert csv_text("dtr (a=1)") == "dtr (a=1)" and csv_text("") == ""


LATEX = {
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^",
    r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", r"\symbol{34}": '"',
    r"\symbol{96}": "`", r"$\Delta$": "Δ",
    **{f"\\{one}": one for one in "{}$&#_%"},
}  # fmt: skip
SPECIAL = re.compile("|".join(map(re.escape, LATEX)))


@given(TEXTS)
def test_latex_is_one_line_of_the_text_without_commands(text: str) -> None:
    found = latex_text(text)
    assert not set(SPECIAL.sub("", found)) & set('\\{}$&#_%~^<>|"`\n')
    shown = SPECIAL.sub(lambda match: LATEX[match[0]], found)
    assert shown == printable(text).replace("–", "--").replace("\n", " ").replace("\t", " ")


@pytest.mark.parametrize("text", hostile.TEXTS.values(), ids=hostile.TEXTS)
def test_hostile_texts_are_shown_as_they_are(text: str) -> None:
    plain, colours = io.StringIO(), io.StringIO()
    Console(file=plain, width=9_999, force_terminal=False).print(terminal_text(text))
    Console(file=colours, width=9_999, force_terminal=True).print(terminal_text(text))
    assert plain.getvalue().rstrip() == printable(text).expandtabs().rstrip()
    assert colours.getvalue() == plain.getvalue()
    line = markdown_text(text)
    assert "\n" not in line and not MARKDOWN.renderInline(line).count("<")
    bare = line.replace(r"\:", "").replace(r"\.", "")
    assert "://" not in bare and "www." not in bare  # GitHub makes links of these


def test_names_of_methods_and_intervals_stay_readable() -> None:
    for text in ("no_retrieval", "12.3 [10.1, 14.0]", "lambda: 0.1", "ΔEM vs dpr_ais"):
        assert markdown_text(text) == text
    assert markdown_text("a|b_ <c>") == r"a\|b\_ &lt;c>"
