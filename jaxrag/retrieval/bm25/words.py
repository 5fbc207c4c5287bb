"""BM25's settings and words, as the library bm25s splits texts, and by a rule for other scripts."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import itertools
import logging
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from jaxrag.core.checks import check_range
from jaxrag.text.characters import of_categories
from jaxrag.types import InputError

RULES = 3
"""Part of an index's identity: increase it when texts are split otherwise."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Myanmar, Khmer
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9d\U0001b000-\U0001b16f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003347f"  # Han
    "\u1100-\u11ff\u3105-\u31bf\ua960-\ua97f\uac00-\ud7ff"  # Bopomofo and Hangul
    "\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\ua000-\ua4cf"  # Tai Le, Lue and Tham, Balinese, Yi
    "\ua980-\ua9ff\uaa60-\uaadf"  # Javanese, other letters of Myanmar, Tai Viet
)
"""Scripts without blanks between words; and Hangul, whose words carry particles."""

_FORMS = "\u00ad\u0640\u2e80-\u2fdf\ufb00-\ufdff\ufe70-\ufeff\uff01-\uffef"
"""Characters that are forms of others: wide, narrow, joined or stretched; and soft hyphens."""


@dataclasses.dataclass(frozen=True)
class Bm25Settings:
    """Settings of a BM25 index; the defaults are near those of Anserini.

    Words are runs of two or more letters, digits and underscores, in lower case; in scripts without
    blanks, characters and pairs of them (see `split_words`). A passage that shares no word with the
    query is not found. A word of f of the n passages weighs idf = log(1 + (n - f + 1/2) / (f +
    1/2)), as in Lucene. The index has no vectors, so AIS cannot select from it.

    Attributes:
      k1: saturation of a word's frequency; at 0, further occurrences add nothing.
      b: penalty of long passages, 0 to 1.
      stopwords: words left out: "english" (Lucene's 33), "english_plus" (180), another language of
        bm25s, or "none".
      stemmer: Snowball stemmer: "porter", "english", another language, or "none".
    """

    k1: float = 0.9
    b: float = 0.4
    stopwords: str = "english"
    stemmer: str = "porter"

    def __post_init__(self) -> None:
        check_range(k1=self.k1)
        check_range(1, b=self.b)


def split_words(texts: Sequence[str], settings: Bm25Settings) -> list[list[str]]:
    """The words of each text, in its order; InputError for unknown stop words or stemmer.

    Runs of two or more letters, digits and underscores. A text with combining marks is brought to
    NFC, and the marks are parts of its words, but Hebrew points and Arabic vowel signs are removed.
    Wide letters, ligatures and other such forms become their letters. Of a run in a script without
    blanks (Chinese, Japanese, Thai, Korean, ...) the words are its characters and its pairs of
    neighbours.
    """
    ours = list(map(_is_ours, texts))
    plain = [text for text, own in zip(texts, ours, strict=True) if not own]
    separated = [_separated(text) for text, own in zip(texts, ours, strict=True) if own]
    plain_found = iter(_tokenize(plain, r"(?u)\b\w\w+\b", settings))
    own_found = iter(_tokenize(separated, r"\S+", settings))
    return [next(own_found if own else plain_found) for own in ours]


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What `_is_ours` looks for; and words, the runs of scripts without blanks in group 1."""
    mark = of_categories("M")
    run = rf"((?:(?=\w)[{_UNSPACED}]{mark}*)+)"
    return (
        re.compile(f"[{_UNSPACED}{_FORMS}]|{mark}"),
        re.compile(rf"{run}|(?![{_UNSPACED}])\w(?:(?![{_UNSPACED}])\w|{mark})+"),
    )


def _is_ours(text: str) -> bool:
    if text.isascii():
        return False
    text = text.lower()  # which gives the Turkish I a mark
    return not unicodedata.is_normalized("NFC", text) or bool(_patterns()[0].search(text))


def _separated(text: str) -> str:
    """The words of a text, with blanks between them."""
    words = []
    for match in _patterns()[1].finditer(_plain(text.lower())):
        if match[1]:
            characters = re.findall(rf"\w{of_categories('M')}*", match[1])
            words += [*characters, *map("".join, itertools.pairwise(characters))]
        else:
            words.append(match[0])
    return " ".join(words)


def _plain(text: str) -> str:
    """A text in NFC, without forms of letters and without optional vowels."""
    text = text.translate({0xAD: None, 0x640: None}).replace("i\u0307", "i")
    text = re.sub(f"[{_FORMS}]+", lambda run: unicodedata.normalize("NFKC", run[0]), text)
    kept = (c for c in text if not 10 <= unicodedata.combining(c) <= 36)
    return unicodedata.normalize("NFC", "".join(kept))


def _tokenize(texts: list[str], pattern: str, settings: Bm25Settings) -> list[list[str]]:
    try:
        return bm25s().tokenize(
            texts,
            token_pattern=pattern,
            stopwords=None if settings.stopwords == "none" else settings.stopwords,
            stemmer=_stemmer(settings.stemmer),
            return_ids=False,
            show_progress=False,
        )
    except ValueError as error:
        raise InputError(f"stopwords is {settings.stopwords!r}: {error}") from error


def _stemmer(name: str) -> Any:
    if name == "none":
        return None
    try:
        import Stemmer
    except ImportError:
        raise _missing("PyStemmer") from None
    if name not in Stemmer.algorithms(aliases=True):
        stemmers = ", ".join(sorted(Stemmer.algorithms()))
        raise InputError(f"stemmer is {name!r}; allowed are none, {stemmers}.")
    return Stemmer.Stemmer(name)


def bm25s() -> Any:
    """The library bm25s, imported lazily."""
    try:
        import bm25s
    except ImportError:
        raise _missing("bm25s") from None
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG for itself
    return bm25s


def version(name: str) -> str:
    """Version of an installed package that BM25 needs; InputError if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise _missing(name) from None


def _missing(name: str) -> InputError:
    return InputError(f"BM25 needs the package {name}: pip install 'jaxrag[bm25]'")
