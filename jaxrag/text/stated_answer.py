"""The answer at the end of a text that reasons first: "... So the answer is 12 May 1830."."""

from __future__ import annotations

import re

_CUE = re.compile(r"\banswer(?:\s+is\b\s*:?|\s*:)[ \t]*", re.I)
_WORD_BEFORE = r"(?<=\w{3})|(?<=\d)|(?<=\b[a-z])|(?<=\b[a-z]{2})"
_NEXT_SENTENCE = re.compile(rf"(?:{_WORD_BEFORE})[.!?]\s+(?=[A-Z])")
_AROUND = "_\"'“”‘’` \t"


def conclusion(text: str) -> str | None:
    """What a text says the answer is, the last time it does; None where it does not.

    The answer is what follows "answer is" or "answer:" on its line. It ends early where a new
    sentence seems to begin: a full stop (or ! or ?), and a capital after it, unless the word before
    is a capital with at most one letter more. So "St. Petersburg", "J. K. Rowling" and "3.5" stay
    whole. Marks of emphasis, quotes and the last full stop are no part of it.
    """
    text = text.replace("*", "")
    ends = [match.end() for match in _CUE.finditer(text)]
    line = next(iter(text[ends[-1] :].splitlines()), "") if ends else ""
    first = _NEXT_SENTENCE.split(line, maxsplit=1)[0]
    return first.strip(_AROUND).rstrip(".!?").strip(_AROUND) or None


def last_sentence(text: str) -> str:
    """The last sentence of a text, for one that states no answer; "" for a blank text."""
    lines = [line for line in text.splitlines() if line.strip()]
    return _NEXT_SENTENCE.split(lines[-1].strip())[-1] if lines else ""
