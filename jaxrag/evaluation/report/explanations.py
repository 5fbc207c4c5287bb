"""Terms of SiDR's scores by token: stored with a run, printed, and drawn in its report.

``explanations.jsonl`` of a run directory has lines for some of its questions: ``question_id``,
``question``, ``search``, ``passage`` (``id``, ``title``), ``score``, ``tokens`` (the largest terms:
``token``, ``query``, ``passage``, ``share``, ``in_query``, ``in_passage``) and ``others``, the
number of smaller terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from jaxrag.core import jsonl
from jaxrag.core.printable import terminal_text
from jaxrag.evaluation.report import figures, svg
from jaxrag.retrieval.sidr.explain import Match

NAME = "explanations.jsonl"
DRAWN = 12  # tokens of a figure
_LEFT, _STEP, _THICK = 118, 19, 13  # bars of a figure: start, spacing, thickness


def line(question_id: str, search: str, match: Match, *, most: int) -> dict[str, Any]:
    """A line of ``explanations.jsonl``, with the ``most`` largest terms of a score."""
    return {
        "question_id": question_id,
        "question": match.question,
        "search": search,
        "passage": {"id": match.passage.id, "title": match.passage.title},
        "score": match.score,
        "tokens": [term._asdict() for term in match.terms[:most]],
        "others": len(match.terms[most:]),
    }


def write(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Writes the lines to a run directory, replacing earlier ones."""
    jsonl.write(path / NAME, lines)


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a run directory; empty if none were written."""
    return jsonl.read(path / NAME)


def table(explained: Mapping[str, Any]) -> Table:
    """The terms of a line as a table for ``rich``."""
    passage = explained["passage"]
    grid = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
        title=Text.assemble(
            terminal_text(passage["title"] or passage["id"], "bold"),
            terminal_text(f" ({passage['id']})"),
        ),
        title_justify="left",
        caption=terminal_text(_note(explained, len(explained["tokens"]))),
        caption_justify="left",
    )
    grid.add_column("token")
    for heading in ("in question", "in passage"):
        grid.add_column(heading, justify="center")
    for heading in ("weight in question", "weight in passage", "share %"):
        grid.add_column(heading, justify="right")
    for term in explained["tokens"]:
        marks = ("yes" if term[side] else "" for side in ("in_query", "in_passage"))
        weights = (f"{term[side]:.4g}" for side in ("query", "passage"))
        grid.add_row(terminal_text(term["token"]), *marks, *weights, f"{100 * term['share']:.2f}")
    return grid


def _note(explained: Mapping[str, Any], count: int) -> str:
    """The score, and the share of it from the first ``count`` tokens."""
    carried = sum(term["share"] for term in explained["tokens"][:count])
    rest = len(explained["tokens"][count:]) + explained["others"]
    others = f"; the rest from {rest:,} others" if rest else ""
    start = f"Score {explained['score']:,.1f} ({explained['search']} search): "
    return f"{start}{100 * carried:.0f} % of it comes from these {count} tokens{others}."


def figure(explained: Mapping[str, Any]) -> str:
    """The largest terms as bars, in colour where both texts contain the token."""
    terms = explained["tokens"][:DRAWN]
    if not terms:
        return ""
    x = svg.Scale(0, 100 * terms[0]["share"], _LEFT, svg.RIGHT - 44)
    bottom = svg.TOP + _STEP * len(terms)
    parts = [svg.line(_LEFT, svg.TOP - 4, _LEFT, bottom, kind="axis")]
    parts.append(svg.text(_LEFT, 14, "share of the score, %", kind="label"))
    for number, term in enumerate(terms):
        top, share = svg.TOP + _STEP * number, 100 * term["share"]
        kind = "right" if term["in_query"] and term["in_passage"] else "wrong"
        tip = f"{term['token']}: {term['query']:.3g} × {term['passage']:.3g}, in {_where(term)}"
        base = top + _THICK - 3
        name = term["token"] if len(term["token"]) <= 16 else term["token"][:15] + "…"
        parts.append(svg.text(_LEFT - 7, base, name, anchor="end", kind="name"))
        parts.append(svg.rect(_LEFT, top, x(share) - _LEFT, _THICK, kind=kind, tip=tip))
        parts.append(svg.text(x(share) + 5, base, f"{share:.2f}", kind="tick"))
    alt = f"Tokens that matched for the question: {explained['question']}"
    drawing = svg.drawing(parts, alt=alt, height=bottom + 8)
    passage = explained["passage"]
    note = (
        f"Found: {passage['title'] or passage['id']}. {_note(explained, len(terms))} In "
        "the accent colour: tokens in both question and passage."
    )
    return figures.figure(explained["question"], drawing, note)


def _where(term: Mapping[str, Any]) -> str:
    """Which of the texts contain a token."""
    sides = [("question", term["in_query"]), ("passage", term["in_passage"])]
    return " and ".join(name for name, held in sides if held) or "neither text"
