"""Vectors in a file of FAISS's IndexFlatIP, read without faiss."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import numpy as np
from jaxtyping import Float

from jaxrag.types import InputError

_HEADER = struct.Struct("<4siqqqBi")  # kind, d, ntotal, two unused, is_trained, metric
_LENGTH = struct.Struct("<Q")  # of the array of numbers that follows
_FLAT = "IxFI"
_OTHERS = {
    "IxF2": "IndexFlatL2",
    "IxFl": "IndexFlat of another metric",
    "IxPq": "IndexPQ",
    "IxPo": "IndexPQ",
    "IxSQ": "IndexScalarQuantizer",
    "IwFl": "IndexIVFFlat",
    "IvFl": "IndexIVFFlat",
    "IwPQ": "IndexIVFPQ",
    "IvPQ": "IndexIVFPQ",
    "IwQR": "IndexIVFPQR",
    "IwSq": "IndexIVFScalarQuantizer",
    "IwSQ": "IndexIVFScalarQuantizer",
    "IwPf": "IndexIVFPQFastScan",
    "IHNf": "IndexHNSWFlat",
    "IHNp": "IndexHNSWPQ",
    "IHNs": "IndexHNSWSQ",
    "IxPT": "IndexPreTransform",
    "IxRF": "IndexRefineFlat",
    "IxMp": "IndexIDMap",
    "IxM2": "IndexIDMap2",
    "IBxF": "IndexBinaryFlat",
}


@dataclasses.dataclass(frozen=True)
class FlatVectors:
    """The vectors of a file that faiss wrote of an IndexFlatIP: whole, in float32, row by row.

    Attributes:
      path: of the file.
      count: number of vectors.
      dimension: their length.
    """

    path: Path
    count: int
    dimension: int

    @classmethod
    def open(cls, path: str | Path) -> FlatVectors:
        """Reads the header of a file, or of the only ``*.index`` file of a folder.

        Raises:
          InputError: no such file, another kind of index, or a file that is cut short.
        """
        path = _index_file(Path(path).expanduser())
        with path.open("rb") as stream:
            header = stream.read(_HEADER.size + _LENGTH.size)
        kind = header[:4].decode("latin-1")
        if kind != _FLAT:
            named = _OTHERS.get(kind)
            what = f"an {named}" if named else f"no known index of faiss (it begins {kind!r})"
            raise InputError(
                f"{path} is {what}; only whole vectors of an IndexFlatIP can be imported"
            )
        if len(header) < _HEADER.size + _LENGTH.size:
            raise InputError(f"{path} has {len(header)} bytes: it is cut short; get it again")
        _, dimension, count, _, _, _, metric = _HEADER.unpack_from(header)
        (numbers,) = _LENGTH.unpack_from(header, _HEADER.size)
        size, expected = path.stat().st_size, len(header) + 4 * dimension * count
        if metric != 0 or dimension < 1 or count < 1 or numbers != dimension * count:
            raise InputError(
                f"the header of {path} is not an IndexFlatIP's with vectors: metric {metric}, "
                f"{count:,} vectors of {dimension} numbers, {numbers:,} numbers in all"
            )
        if size != expected:
            raise InputError(
                f"{path} has {size:,} bytes; {count:,} vectors of {dimension} numbers take "
                f"{expected:,}: it is cut short or damaged; get it again"
            )
        return cls(path, count, dimension)

    def vectors(self, rows: range) -> Float[np.ndarray, "n d"]:
        """The vectors of consecutive rows, float32."""
        offset = _HEADER.size + _LENGTH.size + 4 * self.dimension * rows.start
        numbers = np.fromfile(self.path, "<f4", len(rows) * self.dimension, offset=offset)
        return numbers.reshape(len(rows), self.dimension)


def _index_file(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(path.glob("*.index")) if path.is_dir() else []
    if len(files) != 1:
        there = ", ".join(file.name for file in files) or "none"
        raise InputError(
            f"{path} is no file of faiss, nor a folder with one *.index file (there: {there}); "
            "give the file, such as e5_Flat.index"
        )
    return files[0]
