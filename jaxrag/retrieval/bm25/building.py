"""Building a BM25 index in bounded memory; the files are those of the library bm25s.

The words of all passages are numbered and written to a temporary file of 4 bytes a word, while the
passages that have each word are counted. The counts say where each word's postings (the passages
that have it, with their scores) lie in the index, which are then filled in, for as many words at a
time as memory is allowed.
"""

from __future__ import annotations

import array
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float, Int

from jaxrag.core.progress import progress
from jaxrag.retrieval.bm25.words import Bm25Settings, bm25s, split_words
from jaxrag.retrieval.corpus.builds import array_header, check_space
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.types import InputError

_CHUNK = 4096  # passages tokenized at a time
_WORDS = 1 << 22  # words of passages whose postings are made at a time
_POSTINGS = 1 << 27  # postings in memory, of 8 bytes


def write_index(passages: Passages, settings: Bm25Settings, folder: Path) -> None:
    """Writes the index of a corpus into a new folder; words are numbered as they first occur.

    Memory: the vocabulary, 12 bytes for each passage, and about 1.5 GB at most for postings.
    InputError for no passages or no words to index, or too little room on the disk.
    """
    if not len(passages):
        raise InputError("the corpus is empty; an index needs at least one passage")
    temporary = folder.with_name(folder.name + ".words")
    try:
        numbered = _number_words(passages, settings, temporary)
        check_space(folder.parent, 8 * int(numbered.passages.sum() + len(numbered.passages) + 1))
        # the library writes all its files, those of the postings empty
        searcher = bm25s().BM25(k1=settings.k1, b=settings.b, method="lucene", backend="numpy")
        names = ("data", "indices", "indptr")
        searcher.scores = dict.fromkeys(names, np.zeros(0, np.int8)) | {"num_docs": len(passages)}
        searcher.vocab_dict, searcher.nonoccurrence_array = numbered.vocabulary, None
        searcher.save(folder, show_progress=False)
        _write_postings(numbered, settings, folder)
    finally:
        temporary.unlink(missing_ok=True)


@dataclasses.dataclass(frozen=True)
class Numbered:
    """The words of a corpus as numbers, passage after passage, in a memory map.

    ``lengths`` are the passages' numbers of words; ``passages`` counts those that have each word.
    """

    vocabulary: dict[str, int]
    words: Int[np.ndarray, " t"]
    lengths: Int[np.ndarray, " n"]
    passages: Int[np.ndarray, " v"]

    def chunks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yields first passage, words and lengths of some passages at a time."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        first, start = 0, 0
        while first < len(ends):
            after = int(np.searchsorted(ends, start + _WORDS, side="right"))
            after = max(after, first + 1)  # a longer passage is a chunk of its own
            stop = int(ends[after - 1])
            yield first, self.words[start:stop], self.lengths[first:after]
            first, start = after, stop


def _number_words(passages: Passages, settings: Bm25Settings, temporary: Path) -> Numbered:
    vocabulary: dict[str, int] = {}
    lengths, having = array.array("i"), np.zeros(1 << 16, np.int64)
    temporary.parent.mkdir(parents=True, exist_ok=True)
    with temporary.open("wb") as stream, progress(len(passages), "indexing words") as advance:
        for start in range(0, len(passages), _CHUNK):
            chunk = passages.get(range(start, min(start + _CHUNK, len(passages))))
            texts = [f"{passage.title} {passage.text}" for passage in chunk]
            numbers = array.array("i")
            for words in split_words(texts, settings):
                numbers.extend(vocabulary.setdefault(word, len(vocabulary)) for word in words)
                lengths.append(len(words))
            stream.write(numbers)
            if len(vocabulary) > len(having):
                having = np.pad(having, (0, 2 * len(vocabulary) - len(having)))
            sizes = np.frombuffer(lengths, np.int32)[start:].copy()
            occurring, *_ = count_words(np.frombuffer(numbers, np.int32), sizes)
            having[: len(vocabulary)] += np.bincount(occurring, minlength=len(vocabulary))
            advance(len(chunk))
    if not vocabulary:
        raise InputError(f"none of the {len(passages)} passages has a word that counts: {settings}")
    words = np.memmap(temporary, np.int32, mode="r").view(np.ndarray)
    lengths = np.frombuffer(lengths, np.int32)
    return Numbered(vocabulary, words, lengths, having[: len(vocabulary)])


def count_words(
    words: Int[np.ndarray, " t"], lengths: Int[np.ndarray, " n"]
) -> tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"], Int[np.ndarray, " p"]]:
    """Words, passages (from 0) and counts, by word and then by passage, of n passages in a row."""
    passages = np.repeat(np.arange(len(lengths)), lengths)
    keys, counts = np.unique(words.astype(np.int64) * len(lengths) + passages, return_counts=True)
    return *np.divmod(keys, len(lengths)), counts


def _write_postings(numbered: Numbered, settings: Bm25Settings, folder: Path) -> None:
    """The postings, with the scores that `Bm25Settings` describes."""
    starts = np.concatenate([[0], np.cumsum(numbered.passages, dtype=np.int64)])
    np.save(folder / "indptr.csc.index.npy", starts)
    kinds, inverse = np.unique(numbered.passages, return_inverse=True)
    n = len(numbered.lengths)
    idf = [math.log(1 + (n - f + 0.5) / (f + 0.5)) for f in kinds.tolist()]
    weights = np.array(idf, np.float32)[inverse]
    with (
        _array_file(folder / "data.csc.index.npy", "float32", int(starts[-1])) as data,
        _array_file(folder / "indices.csc.index.npy", "int32", int(starts[-1])) as indices,
        progress(int(starts[-1]), "scoring postings") as advance,
    ):
        first = 0
        while first < len(weights):
            after = int(np.searchsorted(starts, starts[first] + _POSTINGS, side="right")) - 1
            after = max(after, first + 1)
            scores, rows = _postings(numbered, settings, weights, starts[first : after + 1], first)
            data.write(scores.data)
            indices.write(rows.data)
            advance(len(rows))
            first = after


def _array_file(path: Path, dtype: str, length: int) -> BinaryIO:
    """An .npy file, opened behind its header."""
    stream = path.open("wb")
    stream.write(array_header((length,), dtype))
    return stream


def _postings(
    numbered: Numbered,
    settings: Bm25Settings,
    weights: Float[np.ndarray, " v"],
    starts: Int[np.ndarray, " w+1"],
    first: int,
) -> tuple[Float[np.ndarray, " p"], Int[np.ndarray, " p"]]:
    """Scores and passages of w words from ``first`` on; ``starts`` as in the whole index."""
    scores = np.empty(int(starts[-1] - starts[0]), np.float32)
    rows = np.empty(len(scores), np.int32)
    heads = starts[:-1] - starts[0]
    mean = numbered.lengths.mean()
    some = len(heads) < len(weights)
    for row, words, lengths in numbered.chunks():
        if some:
            inside = (words >= first) & (words < first + len(heads))
            sums = np.concatenate([[0], np.cumsum(inside)])
            ends = np.concatenate([[0], np.cumsum(lengths)])
            numbers, passages, times = count_words(words[inside], np.diff(sums[ends]))
        else:
            numbers, passages, times = count_words(words, lengths)
        kinds, begins = np.unique(numbers, return_index=True)
        counts = np.diff(np.append(begins, len(numbers)))
        places = np.arange(len(numbers)) + np.repeat(heads[kinds - first] - begins, counts)
        # f / (k1 (1 - b + b l / mean) + f) in float64, in the order of operations of bm25s, so that
        # scores are the same to the bit
        f, k1, b = times.astype(np.float32), settings.k1, settings.b
        part = f / (f + k1 * (1 - b + b * lengths[passages] / mean))
        scores[places] = weights[numbers] * part
        rows[places] = passages + row
        heads[kinds - first] += counts
    return scores, rows
