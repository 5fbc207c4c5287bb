"""Vectors in a file of FAISS's IndexFlatIP, read without faiss."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import numpy as np
from jaxtyping import Float

from jaxrag.types import InputError

_HEADER = struct.Struct("<4siqqqBiQ")
"""Kind, dimension, number of vectors, two unused, is_trained, metric, count of all numbers."""

_INNER_PRODUCT = 0  # among faiss's metrics


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
        path = Path(path).expanduser()
        files = [path] if path.is_file() else sorted(path.glob("*.index"))
        if len(files) != 1:
            raise InputError(
                f"{path} is no file of faiss, nor a folder with one *.index file (there: "
                f"{', '.join(file.name for file in files) or 'none'}); give the file, such as "
                "e5_Flat.index"
            )
        path, size = files[0], files[0].stat().st_size
        with path.open("rb") as stream:
            header = stream.read(_HEADER.size)
        if not header.startswith(b"IxFI"):
            raise InputError(
                f"{path} is no IndexFlatIP of faiss (it begins {header[:4]!r}); only whole vectors "
                "of one can be imported"
            )
        if len(header) < _HEADER.size:
            raise InputError(f"{path} has {size} bytes: it is cut short; get it again")
        _, dimension, count, _, _, _, metric, numbers = _HEADER.unpack(header)
        expected = _HEADER.size + 4 * numbers
        if metric != _INNER_PRODUCT or min(dimension, count) < 1 or numbers != dimension * count:
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
        offset = _HEADER.size + 4 * self.dimension * rows.start
        numbers = np.fromfile(self.path, "<f4", len(rows) * self.dimension, offset=offset)
        return numbers.reshape(len(rows), self.dimension)
