"""A small table of text, for the terminal, as Markdown and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from rich import box, markup
from rich.table import Table


class Grid(NamedTuple):
    """Headings and rows; the first column is the name of a row.

    Attributes:
      headings: of the columns.
      rows: as many cells each.
    """

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def terminal(self) -> Table:
        """For ``rich``."""
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for place, heading in enumerate(self.headings):
            least = max(map(len, heading.split()))
            justify = "right" if place else "left"
            table.add_column(heading, justify=justify, min_width=least, overflow="fold")
        for row in self.rows:
            table.add_row(*(markup.escape(cell) for cell in row))
        return table

    def markdown(self) -> str:
        """As GitHub-flavoured Markdown."""
        rule = ("---", *["---:"] * (len(self.headings) - 1))
        lines = [self.headings, rule, *self.rows]
        return "".join(f"| {' | '.join(map(cell_text, line))} |\n" for line in lines)

    def html(self) -> str:
        """As a table of the report's page."""
        heads = "".join(f"<th>{escape(heading)}</th>" for heading in self.headings)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows
        )
        return (
            f'<div class="wide"><table><thead><tr>{heads}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )


def cell_text(cell: str) -> str:
    """A cell's text as Markdown takes it."""
    return cell.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
