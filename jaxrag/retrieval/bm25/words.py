"""Words of texts, as the library bm25s splits them."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxrag.types import InputError, Passage

if TYPE_CHECKING:
    from jaxrag.retrieval.bm25.index import Bm25


def indexed_text(passage: Passage, settings: Bm25) -> str:
    """The text of a passage whose words are indexed."""
    return f"{passage.title} {passage.text}" if settings.title else passage.text


def split_words(texts: Sequence[str], settings: Bm25) -> list[list[str]]:
    """The words of each text, in its order.

    Raises:
      InputError: unknown stop words or stemmer.
    """
    library = bm25s()
    try:
        return library.tokenize(
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
    try:
        import Stemmer
    except ImportError:
        raise _missing("PyStemmer") from None
    if name not in Stemmer.algorithms(aliases=True):
        known = ", ".join(sorted(Stemmer.algorithms()))
        raise InputError(f"stemmer is {name!r}; allowed are none, {known}.")
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
    """Version of an installed package that BM25 needs.

    Raises:
      InputError: it is not installed.
    """
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise _missing(name) from None


def _missing(name: str) -> InputError:
    return InputError(f"BM25 needs the package {name}: pip install 'jaxrag[bm25]'")
