"""BM25: passages ranked by the words that they share with the query.

Robertson and Zaragoza (2009); the variants are those of Kamphuis et al. (2020), "Which BM25 do you
mean?". The library bm25s (Lù 2024) computes every word's score in every passage beforehand, so
that a search sums a few columns of a sparse matrix.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import importlib.metadata
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from jaxrag.core.hashing import canonical
from jaxrag.core.progress import progress
from jaxrag.retrieval.corpus.builds import BuildPart, build_folder
from jaxrag.retrieval.corpus.manifest import Manifest, open_manifest, state_of
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.settings import Footprint, IndexStatus, index_directory, refuse_parts
from jaxrag.types import InputError, Ranking

KIND = "bm25"
_VARIANTS = ("lucene", "robertson", "atire")
_FOLDER = "bm25"
_CHUNK = 4096  # passages tokenized at a time


@dataclasses.dataclass(frozen=True)
class Bm25:
    """Settings of a BM25 index; the defaults are near those of Anserini.

    Words are runs of two or more letters, digits and underscores, in lower case. The index has no
    vectors, so AIS cannot select from it.

    Attributes:
      variant: "lucene", idf log(1 + (n - f + 1/2) / (f + 1/2)), above 0 for every word;
        "robertson", log((n - f + 1/2) / (f + 1/2)), 0 for words of more than half of the passages;
        "atire", log(n / f) and k1 + 1 times the rest.
      k1: saturation of a word's frequency; at 0, further occurrences add nothing.
      b: penalty of long passages, 0 to 1.
      title: whether a passage's title counts as part of its text.
      stopwords: words left out: "english" (Lucene's 33), "english_plus" (180), another language of
        bm25s, or "none".
      stemmer: Snowball stemmer: "porter", "english", another language, or "none".
    """

    variant: Literal["lucene", "robertson", "atire"] = "lucene"
    k1: float = 0.9
    b: float = 0.4
    title: bool = True
    stopwords: str = "english"
    stemmer: str = "porter"

    gives_vectors = False
    checkpoints = ()

    def __post_init__(self) -> None:
        if self.variant not in _VARIANTS:
            raise InputError(f"variant is {self.variant!r}; allowed are {', '.join(_VARIANTS)}.")
        if not (0 <= self.k1 < float("inf") and 0 <= self.b <= 1):
            raise InputError(
                f"k1 is {self.k1} and b is {self.b}: k1 must be a number from 0 up, b from 0 to 1."
            )

    @property
    def name(self) -> str:
        """Name in tables."""
        return "BM25"

    def open(self, passages: Passages, cache: Path) -> Bm25Index:
        """Opens the index, building it on first use."""
        return Bm25Index.build(self._directory(passages, cache), passages, settings=self)

    def build(self, passages: Passages, cache: Path, part: BuildPart) -> None:
        """Builds the index; not in parts."""
        refuse_parts(self.name, part)
        self.open(passages, cache)

    def footprint(self, passages: Passages) -> Footprint:
        """Not known before words are counted."""
        return Footprint(note="not known before the words are counted")

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """Whether the index is built."""
        directory = self._directory(passages, cache)
        return IndexStatus(directory, state_of(directory / _FOLDER, KIND))

    def _directory(self, passages: Passages, cache: Path) -> Path:
        return index_directory(cache, KIND, canonical(_source(passages, self)))


_DEFAULTS = Bm25()


@dataclasses.dataclass(frozen=True)
class Bm25Index:
    """An index of a corpus's words; its arrays are memory maps."""

    identity: str
    passages: Passages
    settings: Bm25
    manifest: Manifest
    searcher: Any

    @classmethod
    def build(
        cls,
        directory: str | Path,
        passages: Passages,
        *,
        settings: Bm25 = _DEFAULTS,
        verify: bool | None = None,
    ) -> Bm25Index:
        """Indexes a corpus, unless an undamaged index is there; opens it.

        The same corpus gives the same files. While it builds, memory holds 4 bytes for each word of
        the corpus, and then about 40 for each distinct word of a passage. ``verify``: see `open`.

        Raises:
          InputError: no words to index, an invalid setting, an index of something else in the
            directory, bm25s or PyStemmer not installed, or a full disk.
        """
        folder = Path(directory).absolute() / _FOLDER
        save = functools.partial(_save, passages, settings)
        build_folder(folder, KIND, _source(passages, settings), save)
        return cls.open(directory, passages, settings=settings, verify=verify)

    @classmethod
    def open(
        cls,
        directory: str | Path,
        passages: Passages,
        *,
        settings: Bm25 = _DEFAULTS,
        verify: bool | None = None,
    ) -> Bm25Index:
        """Opens an index that `build` wrote with the same settings from the same corpus.

        ``verify`` compares the hashes of all files; None does so up to 1 GiB.

        Raises:
          InputError: no index there, or it is damaged or made from something else.
        """
        folder = Path(directory).absolute() / _FOLDER
        manifest = open_manifest(folder, KIND, _source(passages, settings), verify=verify)
        searcher = _library().BM25.load(folder, mmap=True, show_progress=False)
        for name in ("data", "indices", "indptr"):
            searcher.scores[name] = searcher.scores[name].view(np.ndarray)
        identity = canonical({"bm25": manifest.settings, "content": manifest.content})
        return cls(identity, passages, settings, manifest, searcher)

    def search_texts(self, texts: Sequence[str], k: int) -> list[Ranking]:
        """The ``k`` best passages of each query (all of them where ``k`` exceeds the corpus).

        A passage that shares no word with the query scores 0; such passages follow in the order of
        rows, so that a query without a known word gets the first ``k`` rows. A word counts as often
        as the query has it.

        Raises:
          InputError: ``k`` is below 1.
        """
        if k < 1:
            raise InputError(f"k must be at least 1, not {k}")
        vocabulary = self.searcher.vocab_dict
        rankings = []
        for words in split_words(texts, self.settings):
            known = [vocabulary[word] for word in words if word in vocabulary]
            rankings.append(_best(self.searcher.get_scores_from_ids(known), k))
        return rankings


def _best(scores: Float[np.ndarray, " n"], k: int) -> Ranking:
    """The ``k`` largest scores; equal scores in the order of rows."""
    k = min(k, len(scores))
    last = np.partition(scores, -k)[-k]
    above, level = np.flatnonzero(scores > last), np.flatnonzero(scores == last)
    above = above[np.argsort(-scores[above], kind="stable")]
    rows = np.concatenate([above, level[: k - len(above)]])
    return Ranking(tuple(rows.tolist()), tuple(scores[rows].tolist()))


def _source(passages: Passages, settings: Bm25) -> dict[str, Any]:
    """Sources of an index: corpus, settings, versions of the libraries."""
    packages = ("bm25s", "PyStemmer") if settings.stemmer != "none" else ("bm25s",)
    return {
        "settings": dataclasses.asdict(settings),
        "passages": {"identity": passages.identity, "count": len(passages)},
        "libraries": {name: _version(name) for name in packages},
    }


def _save(passages: Passages, settings: Bm25, folder: Path) -> None:
    searcher = _indexed(passages, settings)
    arrays = (searcher.scores[name] for name in ("data", "indices", "indptr"))
    needed, free = sum(a.nbytes for a in arrays), shutil.disk_usage(folder.parent).free
    if free < needed:
        raise InputError(
            f"the index in {folder.parent} needs {needed / 1e9:,.2f} GB, its disk has "
            f"{free / 1e9:,.2f} GB left; free some space or give another directory"
        )
    searcher.save(folder, show_progress=False)


def _indexed(passages: Passages, settings: Bm25) -> Any:
    """The library's index in memory; words are numbered as they first occur."""
    if not len(passages):
        raise InputError("the corpus is empty; an index needs at least one passage")
    vocabulary: dict[str, int] = {}
    rows = []
    with progress(len(passages), "indexing words") as advance:
        for start in range(0, len(passages), _CHUNK):
            chunk = passages.get(range(start, min(start + _CHUNK, len(passages))))
            texts = [f"{p.title} {p.text}" if settings.title else p.text for p in chunk]
            for words in split_words(texts, settings):
                numbers = (vocabulary.setdefault(word, len(vocabulary)) for word in words)
                rows.append(array.array("i", numbers))
            advance(len(chunk))
    if not vocabulary:
        raise InputError(f"none of the {len(rows)} passages has a word that counts: {settings}")
    searcher = _library().BM25(
        k1=settings.k1, b=settings.b, method=settings.variant, backend="numpy"
    )
    searcher.index((rows, vocabulary), create_empty_token=False, show_progress=False)
    return searcher


def split_words(texts: Sequence[str], settings: Bm25) -> list[list[str]]:
    """The words of each text, in its order.

    Raises:
      InputError: unknown stop words or stemmer.
    """
    library = _library()
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
    _version("PyStemmer")
    import Stemmer

    if name not in Stemmer.algorithms(aliases=True):
        known = ", ".join(sorted(Stemmer.algorithms()))
        raise InputError(f"stemmer is {name!r}; allowed are none, {known}.")
    return Stemmer.Stemmer(name)


def _library() -> Any:
    """bm25s, imported lazily."""
    _version("bm25s")
    import bm25s

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG for itself
    return bm25s


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise InputError(f"BM25 needs the package {name}: pip install 'jaxrag[bm25]'") from None
