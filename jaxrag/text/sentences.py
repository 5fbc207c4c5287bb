"""Texts cut into sentences, and told to be the same."""

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
    """The sentences of a text, each with its mark; joined by blanks they are the text again.

    One ends with a line, or with . ! or ? before a blank, unless what follows begins in lower
    case, or the word before the full stop is an initial or a usual abbreviation ("J. K. Rowling",
    "St. Petersburg"). Runs of blanks become one.
    """
    return [one for line in text.splitlines() for one in _in_line(" ".join(line.split())) if one]


def _in_line(line: str) -> list[str]:
    found, start = [], 0
    for mark in _SENTENCE_END.finditer(line):
        rest = line[mark.end() :].lstrip()
        if rest[:1].islower() or _abbreviates(line[start : mark.end()]):
            continue
        found.append(line[start : mark.end()].strip())
        start = mark.end()
    return [*found, line[start:].strip()]


def _abbreviates(piece: str) -> bool:
    word = _LAST_WORD.search(piece)
    return word is not None and bool(_ABBREVIATED.fullmatch(word.group(1)))


def key_of(text: str) -> str:
    """What two texts have in common that differ in case, blanks and punctuation only."""
    return " ".join(re.findall(r"\w+", text.casefold()))
