"""Escaping of text from models, questions, passages and files for each form of output."""

from __future__ import annotations

import re
from html import escape

from rich.text import Text

# Control characters but for line feed and tab; marks that reorder text (bidirectional embeddings,
# overrides and isolates); and two characters that XML does not allow.
_REMOVED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
# An underscore inside a word, as in the names of methods, marks no emphasis in Markdown.
_MARKDOWN = re.compile(r"[\\`*|~$]|(?<![^\W_])_|_(?![^\W_])|(?<=\])[(\[]|:(?=//)|(?<=www)\.")
_FORMULA = tuple("=+-@＝＋－＠")  # beginnings that spreadsheets take for a formula, wide ones too
_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "{}$&#_%"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\symbol{34}",
        "`": r"\symbol{96}",
        "–": "--",
        "Δ": r"$\Delta$",
        "\n": " ",
        "\t": " ",
    }
)


def printable(text: str) -> str:
    """The text without characters that control a terminal or reorder it; surrogates are "?"."""
    return _REMOVED.sub("", text).encode("utf-8", "replace").decode("utf-8")


def terminal_text(text: str, style: str = "") -> Text:
    """The text, in a style such as "bold", for ``rich``, which finds no markup or emoji in it."""
    return Text(printable(text), style)


def html_text(text: str) -> str:
    """The text as content of an HTML or SVG element, or as an attribute's value in quotes."""
    return escape(printable(text))


def markdown_text(text: str) -> str:
    """The text on one line of GitHub's Markdown, such as a table's cell, without any markup."""
    line = printable(text).replace("\n", " ").replace("&", "&amp;").replace("<", "&lt;")
    return _MARKDOWN.sub(r"\\\g<0>", line)


def csv_text(text: str) -> str:
    """The text on one line as a cell of a CSV file, unquoted; a formula gets an apostrophe."""
    line = printable(text).replace("\n", " ")
    return f"'{line}" if line.lstrip().startswith(_FORMULA) else line


def latex_text(text: str) -> str:
    """The text on one line of LaTeX, such as a table's cell; it has no command and no formula."""
    return printable(text).translate(_LATEX)
