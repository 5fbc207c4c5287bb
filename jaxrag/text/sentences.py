"""Sentence splitting, and comparison of texts regardless of case and punctuation."""

from __future__ import annotations

import re

_ABBREVIATED = re.compile(
    r"(?:mr|mrs|ms|dr|st|prof|gen|col|lt|sgt|capt|sr|jr|vs|etc|cf|ca|approx|e\.g|i\.e|u\.s|u\.k)"
    r"|(?-i:[A-Z]|No)",
    re.I,
)
_SENTENCE_END = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s)")
_LAST_WORD = re.compile(r"([\w.]+)\.+$")


def sentences(text: str) -> list[str]:
    """The sentences of a text with their punctuation; white space becomes single spaces.

    A sentence ends at a line break, or at . ! or ? before a space. It continues where the next word
    begins in lower case, or where the full stop follows an initial or a common abbreviation
    ("J. K. Rowling", "St. Petersburg").
    """
    return [one for line in text.splitlines() for one in _in_line(" ".join(line.split())) if one]


def _in_line(line: str) -> list[str]:
    found, start = [], 0
    for mark in _SENTENCE_END.finditer(line):
        rest = line[mark.end() :].lstrip()
        if rest[:1].islower() or _ends_with_abbreviation(line[start : mark.end()]):
            continue
        found.append(line[start : mark.end()].strip())
        start = mark.end()
    return [*found, line[start:].strip()]


def _ends_with_abbreviation(piece: str) -> bool:
    word = _LAST_WORD.search(piece)
    return word is not None and bool(_ABBREVIATED.fullmatch(word.group(1)))


def word_key(text: str) -> str:
    """The case-folded words of a text: equal for texts that differ in case and punctuation only."""
    return " ".join(re.findall(r"\w+", text.casefold()))
