"""Corpora on disk, read by row number and never held in memory."""

from __future__ import annotations

import array
import functools
import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxrag.core.arrays import load_array
from jaxrag.core.durable_files import explain_limits, write_text
from jaxrag.core.hashing import digest_file, hash64
from jaxrag.core.json_text import parse_json
from jaxrag.retrieval.corpus import rows as row_files
from jaxrag.types import InputError, Passage

_KIND = "passages"
_SPLIT = "corpus"
_ROWS_PER_READ = 1024
_IDS = "ids.npy"
_ID_DIGESTS = "id_digests.json"
_ID_ROWS = "id_rows.npy"


class Passages:
    """A corpus: ``len``, ``passages[row]``, ``get(rows)``, iteration in row order.

    ``directory`` holds it; ``identity`` is the hash of the passages in their order.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory).absolute()
        manifest = row_files.read_manifest(self.directory, kind=_KIND)
        self.identity: str = manifest.identity
        self._length = manifest.rows[_SPLIT]
        self._read = row_files.open_rows(self.directory, _SPLIT)

    @classmethod
    def open(cls, directory: str | Path) -> Passages:
        """Opens a corpus of `write_passages`; InputError if missing, unfinished or damaged."""
        return cls(Path(directory))

    @functools.cached_property
    def _ids(self) -> tuple[np.ndarray, np.ndarray]:
        hashes, rows = (self._id_file(name) for name in (_IDS, _ID_ROWS))
        path = self.directory / _ID_DIGESTS
        if path.exists():  # older directories have none
            try:
                with explain_limits(path):
                    recorded = parse_json(path.read_bytes())
                    names = (_IDS, _ID_ROWS)
                    digests = {name: digest_file(self.directory / name) for name in names}
            except (OSError, ValueError) as error:
                if isinstance(error, InputError):
                    raise
                raise self._damaged(_ID_DIGESTS, error) from None
            if recorded != digests:
                raise self._damaged(_IDS, f"its hash, or that of {_ID_ROWS}, differs")
        return hashes, rows

    def _id_file(self, name: str) -> np.ndarray:
        try:
            array = load_array(self.directory / name, mapped=True)
            if array.shape == (self._length,) and array.dtype.kind in "iu":
                return array
            error = f"it holds {array.dtype} {list(array.shape)}"
        except ValueError as reason:
            error = reason
        raise self._damaged(name, error)

    def _damaged(self, name: str, why: object) -> InputError:
        return InputError(
            f"{self.directory / name} is damaged ({why}); remove the directory and build it again"
        )

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: int) -> Passage:
        return self.get([row])[0]

    def __iter__(self) -> Iterator[Passage]:
        for start in range(0, self._length, _ROWS_PER_READ):
            yield from self.get(range(start, min(start + _ROWS_PER_READ, self._length)))

    def get(self, rows: Iterable[int]) -> list[Passage]:
        """The passages of rows, in their order, in one batch; IndexError for a row out of range."""
        numbers = [operator.index(row) for row in rows]
        for row in numbers:
            if not 0 <= row < self._length:
                raise IndexError(f"row {row} of {self._length} passages")
        return [Passage(**row) for row in self._read(numbers)]

    def rows_of(self, ids: Sequence[str]) -> dict[str, int]:
        """Rows of the passages with these ids, in their order, by binary search in hashes on disk.

        Ids that are not there are left out.
        """
        rows = {passage.id: row for row, passage in self._by_id(ids)}
        return {i: rows[i] for i in ids if i in rows}

    def find(self, ids: Sequence[str]) -> list[Passage]:
        """The passages with these ids, in their order, in one batch; KeyError for an unknown id."""
        by_id = {passage.id: passage for _, passage in self._by_id(ids)}
        return [by_id[passage_id] for passage_id in ids]

    def has(self, ids: Sequence[str]) -> list[bool]:
        """Whether there are passages with these ids, by 64-bit hashes: no passage is read."""
        hashes, _ = self._ids
        id_hashes = np.fromiter(map(hash64, ids), np.uint64, len(ids))
        at = np.minimum(np.searchsorted(hashes, id_hashes), len(hashes) - 1)
        return (hashes[at] == id_hashes).tolist()

    def _by_id(self, ids: Sequence[str]) -> list[tuple[int, Passage]]:
        """Rows and passages whose ids have the hashes of ``ids``."""
        hashes, id_rows = self._ids
        id_hashes = np.fromiter(map(hash64, ids), np.uint64, len(ids))
        spans = zip(
            np.searchsorted(hashes, id_hashes, side="left"),
            np.searchsorted(hashes, id_hashes, side="right"),
            strict=True,
        )
        rows = [row for first, last in spans for row in id_rows[first:last].tolist()]
        try:
            return list(zip(rows, self.get(rows), strict=True))
        except IndexError as error:
            raise self._damaged(_ID_ROWS, error) from None


def write_passages(
    directory: str | Path,
    passages: Iterable[Passage],
    *,
    about: Mapping[str, Any] | None = None,
    workers: int | None = None,
) -> Passages:
    """Writes a corpus as a TFDS data set of ArrayRecord files; rows keep the given order.

    See `rows.write_rows`, also for ``about``, ``workers`` and memory. Memory of the ids: 8 bytes a
    passage while writing, 24 while they are sorted. InputError if the directory is not empty, there
    are no passages, or two share an id.
    """
    hashes = array.array("Q")

    def rows() -> Iterator[dict[str, str]]:
        for passage in passages:
            hashes.append(hash64(passage.id))
            yield {"id": passage.id, "title": passage.title, "text": passage.text}

    def save_ids(partial: Path) -> None:
        unsorted = np.frombuffer(hashes, np.uint64)
        order = np.argsort(unsorted, kind="stable")
        _refuse_duplicates(partial, unsorted[order], order)
        np.save(partial / _IDS, unsorted[order])
        np.save(partial / _ID_ROWS, order)
        digests = {name: digest_file(partial / name) for name in (_IDS, _ID_ROWS)}
        write_text(partial / _ID_DIGESTS, json.dumps(digests))

    row_files.write_rows(
        Path(directory),
        {_SPLIT: rows()},
        kind=_KIND,
        fields={"id": str, "title": str, "text": str},
        finish=save_ids,
        about=about,
        workers=workers,
    )
    return Passages.open(directory)


def _refuse_duplicates(directory: Path, hashes: np.ndarray, rows: np.ndarray) -> None:
    """Reads the passages with equal hashes, to tell equal ids from collisions."""
    read = row_files.open_rows(directory, _SPLIT)
    for at in np.flatnonzero(hashes[1:] == hashes[:-1]):
        pair = rows[at : at + 2]
        first, second = (row["id"] for row in read(pair.tolist()))
        if first == second:
            raise InputError(
                f"field 'id': {first!r} is the id of rows {pair[0] + 1} and {pair[1] + 1}"
                " (counted from 1); ids of passages must differ"
            )
