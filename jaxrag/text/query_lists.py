"""Search queries as one text: read out of whatever a model wrote, and written out again.

ERRR and RRR (METHODS section 4.3): queries are split by ';' and the last is followed by '**'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

END, BETWEEN = "**", "; "

_LABEL = r"(?:[\w'’ ]{0,50}\b)?quer(?:y|ies)\b[ \w]{0,30}:|answer:"
_BOLD_LABEL = re.compile(rf"\*\*\s*({_LABEL})\s*\*\*|\*\*\s*({_LABEL})(?=[^*\n]*\S)", re.I)
_LABELLED = re.compile(rf"^\W*(?:{_LABEL})\s*", re.I)
# bold text is no end: at the very beginning, or after the number or the mark of an item
_BOLD = re.compile(
    r"(\A\s*|^\s*(?:[-•*–]\s+|\(?\d{1,2}[.):]\s*))\*\*(?=\s*[\w\"“'])(.+?)\*\*", re.M
)
_MARK = re.compile(r"^\s*(?:[-•*–]\s+|[\[(]?\d{1,2}(?:[.)\]:]+(?=\D|$)|\s*[–-]\s))\s*")
_WITHIN = re.compile(r"(?<=[?.!\"”])\s+(?=\(?\d{1,2}[.)]\s)")  # "who is a? 2. who is b?"
_NOTHING = frozenset(("none", "n a", "no query", "no queries"))


class Queries(NamedTuple):
    """Queries to search for.

    Attributes:
      texts: one or more, different ones.
      parsed: False where none could be read, so that the question stands for them.
      dropped: how many were over the bound.
    """

    texts: tuple[str, ...]
    parsed: bool
    dropped: int = 0


def parse_queries(raw: str, question: str, *, most: int = 5, cut: bool = False) -> Queries:
    """Reads the queries out of a generation; it never fails.

    What follows the first '**' is left out (bold text and labels in bold do not count). Of the
    lines, those before a label such as "Queries:" go, and those that end in a colon. If some of the
    rest have numbers or bullets, these are the queries; otherwise those with ';'; otherwise all.
    Each is split at ';', and loses numbers, bullets, labels and quotes around it. Empty ones go,
    and those that differ from one before them only in case, blanks and punctuation.

    Args:
      raw: the generation, with or without '**'.
      question: what stands in where there is no query.
      most: how many are kept, the first ones.
      cut: the generation ran out of tokens: without '**', the last query may be torn and goes,
        unless it is the only one.
    """
    text = _BOLD.sub(r"\1\2", _BOLD_LABEL.sub(r"\1\2", raw))
    text, ended, _ = text.partition(END)
    items = [item for line in _lines(text) for item in re.split("[;；]", line)]
    if cut and not ended and items and len(different(map(_clean, items))) > 1:
        items = items[:-1]
    found = different(map(_clean, items))
    if not found:
        return Queries((question,), False)
    return Queries(found[:most], True, max(len(found) - most, 0))


def write_queries(texts: Sequence[str]) -> str:
    """Queries as a model is to write them: ``a; b **``."""
    return f"{BETWEEN.join(texts)} {END}"


def different(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts without empty ones and without those that repeat one in other signs."""
    found: dict[str, str] = {}
    for text in texts:
        if (words := " ".join(re.findall(r"\w+", text.casefold()))) and words not in _NOTHING:
            found.setdefault(words, text)
    return tuple(found.values())


def _lines(text: str) -> list[str]:
    """The lines that hold queries."""
    parts = [part for line in text.splitlines() for part in _WITHIN.split(line) if part.strip()]
    first = next((i for i, line in enumerate(parts) if _LABELLED.match(line)), 0)
    lines = [line for line in parts[first:] if not line.rstrip().endswith(":")]
    if marked := [line for line in lines if _MARK.match(line)]:
        return marked
    after = [False, *(line.rstrip().endswith((";", "；")) for line in lines)]
    split = [line for line, goes_on in zip(lines, after, strict=False)
             if goes_on or re.search("[;；]", line)]  # fmt: skip
    return split or lines


def _clean(item: str) -> str:
    """A query without what stands around it."""
    before = None
    while item != before:
        before = item
        item = _LABELLED.sub("", _MARK.sub("", item, count=1), count=1)
        item = _unquoted(" ".join(item.split()).strip(" *`,"))
    return item


def _unquoted(item: str) -> str:
    """A text without quotes around all of it, and without one that has lost its other."""
    marks = '"“”'
    count = sum(item.count(mark) for mark in marks)
    around = len(item) > 1 and item[0] in marks and item[-1] in marks
    if count == 1 or (around and count == 2):
        return item.strip(marks)
    if len(item) > 1 and item[0] in "'‘" and item[-1] in "'’":
        return item[1:-1]
    return item
