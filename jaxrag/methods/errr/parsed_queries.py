"""Parsing of search queries from generated text, and their canonical form ``a; b **``.

In the output format of ERRR and RRR, queries are separated by ';' and end with '**'.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jaxrag.text.sentences import word_key

_END, _SEPARATOR = "**", "; "

_LABEL = r"(?:[\w'’ ]{0,50}\b)?quer(?:y|ies)\b[ \w]{0,30}:|answer:"
_BOLD_LABEL = re.compile(rf"\*\*\s*+({_LABEL})\s*\*\*|\*\*\s*+({_LABEL})(?=[^*\n]*\S)", re.I)
_LABELLED = re.compile(rf"\W*+(?:{_LABEL})\s*", re.I)
# bold text does not end the queries at the beginning, or after an item's number or bullet
_ITEM = r"(?:[-•*–]\s++|\(?\d{1,2}[.):]\s*+)"
_LINE = r"(?:\A|[^\S\n]*+\n)\s*+"  # from the first of the blanks before a line's text
_BOLD = re.compile(rf"(?<!\s)(\A\s*+|{_LINE}{_ITEM})\*\*(?=\s*[\w\"“'])(.+?)\*\*")
_MARK = re.compile(r"\s*+(?:[-•*–]\s+|[\[(]?\d{1,2}(?:[.)\]:]+(?=\D|$)|\s*+[–-](?:\s|$)))\s*")
_NEXT_ITEM = re.compile(r"(?<=[?.!\"”])\s+(?=\(?\d{1,2}[.)]\s)")  # "who is a? 2. who is b?"
_WORD = re.compile(r"\w")
_AROUND, _QUOTES = " *`,", '"“”'
_DOUBLE = re.compile(f"[{_QUOTES}]")
_NO_QUERY = frozenset(("none", "n a", "no query", "no queries"))


class ParsedQueries(NamedTuple):
    """One or more distinct queries of a generation, and how many were dropped beyond the limit.

    ``parsed`` is False if the generation has no query, and the only text is the question itself.
    """

    texts: tuple[str, ...]
    parsed: bool
    dropped: int = 0


def parse_queries(
    raw: str, question: str, *, limit: int = 5, truncated: bool = False
) -> ParsedQueries:
    """Parses the queries of a generation; any text is accepted.

    The text ends at the first '**' that is not part of bold text. Lines before a label such as
    "Queries:" and lines that end with a colon are dropped. If any remaining line has a number or
    bullet, only those lines are used; otherwise, if any has ';', only those; otherwise all. Lines
    are split at ';'. Numbers, bullets, labels and surrounding quotes are removed, then empty
    queries and repetitions (see `unique_queries`).

    Args:
      raw: the generation.
      question: returned as the only query where the generation has none.
      limit: maximum number of queries; the first ones are kept.
      truncated: the generation ended at its token limit. Without '**' its last query may be
        incomplete and is dropped, unless it is the only one.
    """
    text = _BOLD.sub(r"\1\2", _BOLD_LABEL.sub(r"\1\2", raw))
    text, ended, _ = text.partition(_END)
    items = [item for line in _lines(text) for item in re.split("[;；]", line)]
    queries = _cleaned(items)
    if truncated and not ended and len(queries) > 1:
        queries = _cleaned(items[:-1])
    if not queries:
        return ParsedQueries((question,), False)
    return ParsedQueries(queries[:limit], True, max(len(queries) - limit, 0))


def write_queries(texts: Sequence[str]) -> str:
    """Queries in the output format of prompts: ``a; b **``."""
    return f"{_SEPARATOR.join(texts)} {_END}"


def unique_queries(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts without repetitions and without empty queries ("", "none", "n/a").

    Texts that differ only in case, white space and punctuation are repetitions.
    """
    queries: dict[str, str] = {}
    for text in texts:
        if (words := word_key(text)) and words not in _NO_QUERY:
            queries.setdefault(words, text)
    return tuple(queries.values())


def _lines(text: str) -> list[str]:
    """The lines that hold queries."""
    parts = [part for line in text.splitlines() for part in _NEXT_ITEM.split(line) if part.strip()]
    first = next((i for i, line in enumerate(parts) if _LABELLED.match(line)), 0)
    lines = [line for line in parts[first:] if not line.rstrip().endswith(":")]
    if marked := [line for line in lines if _MARK.match(line)]:
        return marked
    after = [False, *(line.rstrip().endswith((";", "；")) for line in lines)]
    split = [line for line, continues in zip(lines, after, strict=False)
             if continues or re.search("[;；]", line)]  # fmt: skip
    return split or lines


def _cleaned(items: Sequence[str]) -> tuple[str, ...]:
    return unique_queries(map(_clean, dict.fromkeys(items)))


def _clean(item: str) -> str:
    """A query without numbers, bullets, labels and quotes around it.

    They may be nested, so they are removed until none is left. Positions move instead of texts:
    the time is linear in the length.
    """
    for pattern in (_MARK, _LABELLED):
        item = item[_end(pattern, item, 0, len(item)) :]
    text = " ".join(item.split())
    quotes = [quote.start() for quote in _DOUBLE.finditer(text)]
    start, end = _unquoted(text, quotes, *_stripped(text, 0, len(text), _AROUND))
    word = -1
    while True:
        first = _end(_MARK, text, start, end)
        if word < first:  # a label begins with the first word, and is looked for there only once
            match = _WORD.search(text, first, end)
            word = match.start() if match else end
            label = _LABELLED.match(text, word, end)
            first = label.end() if label else first
        place = _unquoted(text, quotes, *_stripped(text, first, end, _AROUND))
        if place == (start, end):
            return text[start:end]
        start, end = place


def _end(pattern: re.Pattern[str], text: str, start: int, end: int) -> int:
    """Where a match at ``start`` ends; ``start`` without one."""
    match = pattern.match(text, start, end)
    return match.end() if match else start


def _stripped(text: str, start: int, end: int, characters: str) -> tuple[int, int]:
    """The part of a text without some characters around it."""
    while start < end and text[start] in characters:
        start += 1
    while start < end and text[end - 1] in characters:
        end -= 1
    return start, end


def _unquoted(text: str, quotes: Sequence[int], start: int, end: int) -> tuple[int, int]:
    """The part of a text without quotes around all of it, and without an unpaired double quote.

    ``quotes`` are the positions of the double quotes.
    """
    if end - start < 2:
        return _stripped(text, start, end, _QUOTES)
    count = bisect.bisect_left(quotes, end) - bisect.bisect_left(quotes, start)
    around = text[start] in _QUOTES and text[end - 1] in _QUOTES
    if count == 1 or (around and count == 2):
        return _stripped(text, start, end, _QUOTES)
    while end - start > 1 and text[start] in "'‘" and text[end - 1] in "'’":
        start, end = start + 1, end - 1
    return start, end
