"""HTML tables whose cells open, for pages in Markdown.

They have no empty line, so that a site's generator and a code host take them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxrag.core.printable import html_text


def opening(summary: str, lines: Sequence[str]) -> str:
    """A text that opens to lines of HTML."""
    return f"<details><summary>{html_text(summary)}</summary>{'<br>'.join(lines)}</details>"


def link(text: str, address: str) -> str:
    """A link to another file of the documentation."""
    return f'<a href="{html_text(address)}">{html_text(text)}</a>'


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells in HTML; the first column names the rows."""
    lines = [_row(("th",) * len(headings), headings)]
    lines += [_row(("th", *("td",) * (len(row) - 1)), row) for row in rows]
    return "\n".join(["<table>", *lines, "</table>", ""])


def _row(tags: Sequence[str], cells: Sequence[str]) -> str:
    parts = (f"<{tag}>{cell}</{tag}>" for tag, cell in zip(tags, cells, strict=True))
    return f"<tr>{''.join(parts)}</tr>"
