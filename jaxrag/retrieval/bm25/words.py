"""What BM25 takes for a word, and how words count."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
from collections.abc import Sequence
from typing import Any, Literal

from jaxrag.types import InputError

Variant = Literal["lucene", "robertson", "atire"]

_VARIANTS = ("lucene", "robertson", "atire")


@dataclasses.dataclass(frozen=True)
class Bm25Settings:
    """What a word is, and how it counts; the defaults are near those of Anserini.

    Words are runs of two or more letters, digits and underscores, in lower case.

    Attributes:
      variant: "lucene", idf log(1 + (n - f + 1/2) / (f + 1/2)), above 0 for every word;
        "robertson", log((n - f + 1/2) / (f + 1/2)), where words of more than half of the passages
        count 0; "atire", log(n / f) and k1 + 1 times the rest.
      k1: how much further occurrences of a word add.
      b: how much long passages are put at a disadvantage, 0 to 1.
      title: whether a passage's title counts as part of its text.
      stopwords: words that are left out: "english" (Lucene's 33), "english_plus" (180), another
        language of bm25s, or "none".
      stemmer: the Snowball algorithm that words are cut by: "porter", "english", another language,
        or "none".
    """

    variant: Variant = "lucene"
    k1: float = 0.9
    b: float = 0.4
    title: bool = True
    stopwords: str = "english"
    stemmer: str = "porter"

    def __post_init__(self) -> None:
        if self.variant not in _VARIANTS:
            raise InputError(f"variant is {self.variant!r}; allowed are {', '.join(_VARIANTS)}.")
        if not (0 <= self.k1 < float("inf") and 0 <= self.b <= 1):
            raise InputError(
                f"k1 is {self.k1} and b is {self.b}: k1 must be a number from 0 up, b from 0 to 1."
            )


def split_words(texts: Sequence[str], settings: Bm25Settings) -> list[list[str]]:
    """The words of each text, in its order.

    Raises:
      InputError: stop words or stemmer are not known.
    """
    found = library()
    try:
        return found.tokenize(
            list(texts),
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
    _version("PyStemmer")
    import Stemmer

    if name not in Stemmer.algorithms(aliases=True):
        known = ", ".join(sorted(Stemmer.algorithms()))
        raise InputError(f"stemmer is {name!r}; allowed are none, {known}.")
    return Stemmer.Stemmer(name)


def library() -> Any:
    """bm25s, imported when it is needed."""
    _version("bm25s")
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG for itself
    return bm25s


def versions(settings: Bm25Settings) -> dict[str, str]:
    """The libraries that decide what an index holds, with their versions.

    Raises:
      InputError: one is not installed.
    """
    stems = settings.stemmer != "none"
    return {name: _version(name) for name in ("bm25s", *["PyStemmer"] * stems)}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise InputError(f"BM25 needs the package {name}: pip install 'jaxrag[bm25]'") from None
