"""Words of texts, as the library bm25s splits them."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxrag.types import InputError

if TYPE_CHECKING:
    from jaxrag.retrieval.bm25.index import Bm25


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
    version("PyStemmer")
    import Stemmer

    if name not in Stemmer.algorithms(aliases=True):
        known = ", ".join(sorted(Stemmer.algorithms()))
        raise InputError(f"stemmer is {name!r}; allowed are none, {known}.")
    return Stemmer.Stemmer(name)


def bm25s() -> Any:
    """The library bm25s, imported lazily."""
    version("bm25s")
    import bm25s

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
        raise InputError(f"BM25 needs the package {name}: pip install 'jaxrag[bm25]'") from None
