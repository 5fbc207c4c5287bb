"""Rows of parquet files as records whose errors name file, row and column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jaxrag.core.jsonl_input import InputLine
from jaxrag.types import InputError

_BATCH = 1024  # rows decoded at a time


def read_parquet(path: Path) -> Iterator[InputLine]:
    """The rows of a file, in order; a column's value has the type that it has in JSON.

    Raises:
      InputError: no such file, not a parquet file, or a damaged one.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                for fields in batch.to_pylist():
                    number += 1
                    yield InputLine(path, number, fields, "row")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: not a parquet file, or damaged after row {number} ({error}); get it again"
        ) from None
