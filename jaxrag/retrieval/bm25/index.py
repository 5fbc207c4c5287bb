"""BM25: passages ranked by the words that they share with the query.

Robertson and Zaragoza (2009); the variants are those of Kamphuis et al. (2020), "Which BM25 do you
mean?". The library bm25s (Lù 2024) computes every word's score in every passage beforehand, so
that a search adds up a few columns of a sparse matrix.
"""

from __future__ import annotations

import array
import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from jaxrag.core import durable_files
from jaxrag.core.hashing import canonical
from jaxrag.core.progress import progress
from jaxrag.retrieval.bm25.words import Bm25Settings, library, split_words, versions
from jaxrag.retrieval.corpus import manifest as manifests
from jaxrag.retrieval.corpus.manifest import Manifest
from jaxrag.types import InputError, Passage, Ranking

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

KIND = "bm25"
_DEFAULTS = Bm25Settings()
_FOLDER = "bm25"
_CHUNK = 4096  # passages that are cut into words at a time


@dataclasses.dataclass(frozen=True)
class Bm25Index:
    """An index of a corpus's words; its arrays are memory maps."""

    passages: Passages
    settings: Bm25Settings
    manifest: Manifest
    searcher: Any

    @classmethod
    def build(
        cls,
        directory: str | Path,
        passages: Passages,
        *,
        settings: Bm25Settings = _DEFAULTS,
        verify: bool | None = None,
    ) -> Bm25Index:
        """Indexes a corpus, unless a sound index is there; opens it.

        The same corpus gives the same files. They appear when all are whole. While it builds, the
        numbers of all words of the corpus are in memory: 4 bytes each, and then about 40 for every
        passage's every different word.

        Args:
          directory: made if need be.
          passages: the corpus.
          settings: what counts as a word, and how much.
          verify: see `open`.

        Raises:
          InputError: no words to index, a setting that will not do, an index of something else in
            the directory, bm25s or PyStemmer not installed, or a full disk.
        """
        directory = Path(directory).absolute()
        source = source_of(passages, settings)
        with durable_files.exclusive_directory(directory):
            if state(directory) != "built":
                _write(passages, settings, source, directory / _FOLDER)
        return cls.open(directory, passages, settings=settings, verify=verify)

    @classmethod
    def open(
        cls,
        directory: str | Path,
        passages: Passages,
        *,
        settings: Bm25Settings = _DEFAULTS,
        verify: bool | None = None,
    ) -> Bm25Index:
        """Opens what `build` wrote with the same settings from the same corpus.

        Args:
          directory: where it lies.
          passages: the corpus.
          settings: those it was built with.
          verify: whether to compare hashes of all files; None does so up to 1 GiB.

        Raises:
          InputError: no index there, or it is damaged or made from something else.
        """
        folder = Path(directory).absolute() / _FOLDER
        manifest = manifests.read_manifest(folder, KIND)
        manifests.check_settings(folder, manifest.settings, source_of(passages, settings))
        manifests.check_files(folder, manifest, verify=verify)
        searcher = library().BM25.load(folder, mmap=True, show_progress=False)
        for name in ("data", "indices", "indptr"):
            searcher.scores[name] = searcher.scores[name].view(np.ndarray)
        return cls(passages, settings, manifest, searcher)

    @property
    def identity(self) -> str:
        """Canonical JSON of settings, corpus, libraries, and the hash of the files."""
        return canonical({"bm25": self.manifest.settings, "content": self.manifest.content})

    def search_texts(self, texts: Sequence[str], k: int) -> list[Ranking]:
        """The ``k`` best passages of each query (all of them where ``k`` exceeds the corpus).

        A passage that shares no word with the query scores 0. Such passages fill up a ranking
        where fewer than ``k`` share one, in the order of rows; so a query without a known word
        gets the first ``k`` rows, all with score 0. A word counts as often as the query has it.

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


def source_of(passages: Passages, settings: Bm25Settings) -> dict[str, Any]:
    """What an index is made from, for its manifest and its place: corpus, settings, libraries."""
    return {
        "settings": dataclasses.asdict(settings),
        "passages": {"identity": passages.identity, "count": len(passages)},
        "libraries": versions(settings),
    }


def state(directory: Path) -> str:
    """ "built", "not built yet", or what is wrong with the index in the directory."""
    folder = directory / _FOLDER
    if not folder.exists():
        return "not built yet"
    try:
        manifests.check_files(folder, manifests.read_manifest(folder, KIND), verify=None)
    except InputError as error:
        return str(error)
    return "built"


def _write(
    passages: Passages, settings: Bm25Settings, source: dict[str, Any], folder: Path
) -> None:
    """Writes the index; the folder appears, in place of a damaged one, when it is whole."""
    unfinished = folder.with_name(folder.name + ".new")
    for old in (folder, unfinished):
        shutil.rmtree(old, ignore_errors=True)
    searcher = _indexed(passages, settings)
    arrays = (searcher.scores[name] for name in ("data", "indices", "indptr"))
    needed, free = sum(a.nbytes for a in arrays), shutil.disk_usage(folder.parent).free
    if free < needed:
        raise InputError(
            f"{folder} needs {needed / 1e9:,.2f} GB, its disk has {free / 1e9:,.2f} GB left; make "
            "room or give another directory"
        )
    with durable_files.explain_full_disk(folder.parent):
        searcher.save(unfinished, show_progress=False)
        files = []
        for path in sorted(unfinished.iterdir()):
            durable_files.sync(path)
            files.append(manifests.finished(path))
        Manifest(KIND, source, tuple(files), complete=True).write(unfinished)
        durable_files.rename(unfinished, folder)


def _indexed(passages: Passages, settings: Bm25Settings) -> Any:
    """The library's index in memory; words are numbered as they first occur."""
    if not len(passages):
        raise InputError("the corpus is empty; an index needs at least one passage")
    vocabulary: dict[str, int] = {}
    rows = []
    with progress(len(passages), "indexing words") as advance:
        for start in range(0, len(passages), _CHUNK):
            chunk = passages.get(range(start, min(start + _CHUNK, len(passages))))
            texts = [_text(passage, settings) for passage in chunk]
            for words in split_words(texts, settings):
                numbers = (vocabulary.setdefault(word, len(vocabulary)) for word in words)
                rows.append(array.array("i", numbers))
            advance(len(chunk))
    if not vocabulary:
        raise InputError(f"none of the {len(rows)} passages has a word that counts: {settings}")
    searcher = library().BM25(
        k1=settings.k1, b=settings.b, method=settings.variant, backend="numpy"
    )
    searcher.index((rows, vocabulary), create_empty_token=False, show_progress=False)
    return searcher


def _text(passage: Passage, settings: Bm25Settings) -> str:
    return f"{passage.title} {passage.text}" if settings.title else passage.text


def _best(scores: Float[np.ndarray, " n"], k: int) -> Ranking:
    """The ``k`` largest scores; equal ones in the order of rows."""
    k = min(k, len(scores))
    last = np.partition(scores, -k)[-k]
    above, level = np.flatnonzero(scores > last), np.flatnonzero(scores == last)
    above = above[np.argsort(-scores[above], kind="stable")]
    rows = np.concatenate([above, level[: k - len(above)]])
    return Ranking(tuple(rows.tolist()), tuple(scores[rows].tolist()))
