"""Sentences of texts, texts compared as words, and answers that a chain of thought states."""

from __future__ import annotations

import re

_ABBREVIATION = re.compile(
    r"(?<![\w.])(?:mr|mrs|ms|dr|st|prof|gen|col|lt|sgt|capt|sr|jr|vs|etc|cf|ca|approx|e\.g|i\.e"
    r"|u\.s|u\.k|(?-i:[A-Z]|No))\.$",
    re.I,
)
_LONGEST = len("approx.")
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++[\"'”’)\]]*+(?=\s)")
_CUE = re.compile(r"\banswer(?:\s+is\b\s*[:\uff1a]?|\s*[:\uff1a])\s*", re.I)
_WORD_BEFORE = r"(?<=\w{3})|(?<=\d)|(?<=\b[a-z])|(?<=\b[a-z]{2})"
_NEXT_SENTENCE = re.compile(rf"(?:{_WORD_BEFORE})[.!?]\s+(?=[A-Z])")
_AROUND = "_\"'“”‘’` \t"
BOX = re.compile(  # LaTeX's, which models put around an answer: $\boxed{\text{Lima}}$
    r"((?:\$\$?|\\[(\[])\s{0,3})?\\boxed\{(?:\s*\\(?:text|math)\w*\{([^{}]*)\}\s*"
    r"|((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*))\}(?(1)\s{0,3}(?:\$\$?|\\[)\]]))"
)


def sentences(text: str) -> list[str]:
    """The sentences of a text with their punctuation; white space becomes single spaces.

    A sentence ends at a line break, or at . ! or ? before a space. It continues where the next word
    begins in lower case, or where the full stop follows an initial or a common abbreviation
    ("J. K. Rowling", "St. Petersburg").
    """
    return [s for line in text.splitlines() for s in _split_line(" ".join(line.split())) if s]


def _split_line(line: str) -> list[str]:
    ended, start = [], 0
    for mark in _SENTENCE_END.finditer(line):
        end = mark.end()
        near = max(start, end - _LONGEST)
        if line[end + 1 : end + 2].islower() or _ABBREVIATION.search(line, near, end):
            continue
        ended.append(line[start:end].strip())
        start = end
    return [*ended, line[start:].strip()]


def bare(text: str) -> str:
    """A text without the characters around it that are neither letters, digits nor "_"."""
    first, last = re.search(r"\w", text), re.search(r"\w", text[::-1])
    return text[first.start() : len(text) - last.start()] if first and last else ""


def first_word(text: str) -> str:
    """The first run of letters, digits and "_" in a text; "" without one."""
    match = re.search(r"\w+", text)
    return match.group() if match else ""


def word_key(text: str) -> str:
    """The case-folded words of a text: equal for texts that differ in case and punctuation only."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def stated_answer(text: str) -> str | None:
    """The answer after the last "answer is" or "answer:" of a text; None if there is none.

    It begins there or on the next line that is not blank, and ends with its line or sentence: at .
    ! or ? before a capital letter, unless the word before is a capital with at most one more
    letter, as in "St. Petersburg". Emphasis, boxes, quotes and final punctuation are removed.
    """
    text = BOX.sub(r"\2\3", text.replace("*", ""))
    ends = [match.end() for match in _CUE.finditer(text)]
    line = next(iter(text[ends[-1] :].splitlines()), "") if ends else ""
    first = _NEXT_SENTENCE.split(line, maxsplit=1)[0]
    return first.strip(_AROUND).rstrip(".!?").strip(_AROUND) or None


def last_sentence(text: str) -> str:
    """The last sentence of a text, for an answer that is not stated; "" for a blank text."""
    lines = [line for line in text.splitlines() if line.strip()]
    return _NEXT_SENTENCE.split(lines[-1].strip())[-1] if lines else ""
