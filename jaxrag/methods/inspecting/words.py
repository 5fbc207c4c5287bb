"""Words of a text that a model has read, as DRAGIN and SeaKR interpret its tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jaxrag.engines.local.inspection import Inspection
from jaxrag.text.sentences import bare, sentences, word_key

STOPWORDS = frozenset(
    re.findall(
        r"\w+",
        """
    a about above after again against all also am an and any are as at be because been
    before being below between both but by can could did do does doing down during each few
    for from further had has have having he her here hers herself him himself his how
    however i if in into is it its itself just may me might more most must my myself no nor
    not now of off on once only or other ought our ours ourselves out over own same shall
    she should so some such than that the their theirs them themselves then there therefore
    these they this those through thus to too under until up upon us very was we were what
    when where whether which while who whom whose why will with would yes yet you your yours
    yourself yourselves ain aren couldn didn doesn don hadn hasn haven isn mustn needn shouldn
    wasn weren won wouldn
    """,
    )
)
"""English words that carry little meaning: our own list, shorter than spaCy's."""


class Word(NamedTuple):
    """A word of a text with its start and end in characters and the number of its sentence."""

    text: str
    start: int
    end: int
    sentence: int = 0

    @property
    def bare(self) -> str:
        """The word without punctuation around it."""
        return bare(self.text)

    @property
    def content(self) -> bool:
        """Whether it has letters or digits and is no stopword."""
        key = self.text.casefold().replace("’", "'")
        word = bare(key)
        return bool(word) and word not in STOPWORDS and word.partition("'")[0] not in STOPWORDS


def words_of(text: str, start: int = 0, end: int | None = None) -> list[Word]:
    """The blank-separated words between two characters of a text; sentences count from 0."""
    part = text[start:end]
    lengths = [sentence.count(" ") + 1 for sentence in sentences(part)]
    numbers = np.repeat(np.arange(len(lengths)), lengths).tolist()
    return [
        Word(match.group(), start + match.start(), start + match.end(), number)
        for match, number in zip(re.finditer(r"\S+", part), numbers, strict=True)
    ]


def words_of_tokens(seen: Inspection, words: Sequence[Word]) -> Int[np.ndarray, " n"]:
    """For each token, the index of its word, by its first character that is not blank.

    -1 for tokens outside these words, which are in order of the text.
    """
    indices = np.full(len(seen.spans), -1)
    ends = [word.end for word in words]
    for number, (start, end) in enumerate(seen.spans.tolist()):
        piece = seen.text[start:end]
        at = start + len(piece) - len(piece.lstrip())
        place = int(np.searchsorted(ends, at, side="right"))
        if at < end and place < len(words) and words[place].start <= at:
            indices[number] = place
    return indices


def distinct(words: Sequence[Word]) -> Int[np.ndarray, " w"]:
    """For each word, the index of the first word equal to it up to case and punctuation."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(word_key(w.text), i) for i, w in enumerate(words)], np.int64)
