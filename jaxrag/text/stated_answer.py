"""The answer at the end of a chain of thought: "... So the answer is 12 May 1830."."""

from __future__ import annotations

import re

_CUE = re.compile(r"\banswer(?:\s+is\b\s*[:\uff1a]?|\s*[:\uff1a])\s*", re.I)
_WORD_BEFORE = r"(?<=\w{3})|(?<=\d)|(?<=\b[a-z])|(?<=\b[a-z]{2})"
_NEXT_SENTENCE = re.compile(rf"(?:{_WORD_BEFORE})[.!?]\s+(?=[A-Z])")
_AROUND = "_\"'“”‘’` \t"


def stated_answer(text: str) -> str | None:
    """The answer after the last "answer is" or "answer:" of a text; None if there is none.

    It begins there or on the next line that is not blank. It ends with its line, or earlier before
    a new sentence: at . ! or ? before a capital letter, unless the word before is a capital with at
    most one more letter, as in "St. Petersburg" and "J. K. Rowling". Emphasis marks, quotes and
    final punctuation are removed.
    """
    text = text.replace("*", "")
    ends = [match.end() for match in _CUE.finditer(text)]
    line = next(iter(text[ends[-1] :].splitlines()), "") if ends else ""
    first = _NEXT_SENTENCE.split(line, maxsplit=1)[0]
    return first.strip(_AROUND).rstrip(".!?").strip(_AROUND) or None


def last_sentence(text: str) -> str:
    """The last sentence of a text, for an answer that is not stated; "" for a blank text."""
    lines = [line for line in text.splitlines() if line.strip()]
    return _NEXT_SENTENCE.split(lines[-1].strip())[-1] if lines else ""
