"""Truncation of passages to the model's length limit.

The best stay whole. The first that does not fit is cut after a word, and the rest are dropped. A
word is a run of characters without a blank; longer than 20 characters, it counts as several, so
that text without blanks can be cut, too.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

from jaxrag.types import Passage

_WORD = re.compile(r"(?<!\s)\s*+\S{1,20}")


def word_ends(text: str) -> list[int]:
    """Lengths to which a text may be cut, ascending; the last is its own."""
    ends = [word.end() for word in _WORD.finditer(text)]
    return [*ends[:-1], len(text)]


def beginning(passages: Sequence[Passage], words: int) -> list[Passage]:
    """Passages up to their ``words``-th word, titles aside; an empty text counts as one word."""
    parts = []
    for passage in passages:
        if words < 1:
            break
        ends = word_ends(passage.text)
        end = ends[min(words, len(ends)) - 1]
        parts.append(dataclasses.replace(passage, text=passage.text[:end]))
        words -= len(ends)
    return parts


def longest_fitting(
    passages: Sequence[Passage], fits: Callable[[Sequence[Passage]], bool]
) -> list[Passage]:
    """The longest `beginning` that fits, of passages that do not fit as a whole.

    Found by bisection: one more word does not fit. The first word is kept, whether it fits or not.
    ``passages`` are best first, at least one.
    """
    least, most = 1, sum(len(word_ends(passage.text)) for passage in passages)
    while most - least > 1:
        middle = (least + most) // 2
        if fits(beginning(passages, middle)):
            least = middle
        else:
            most = middle
    return beginning(passages, least)
