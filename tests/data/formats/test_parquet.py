"""Rows of parquet files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxrag.data.formats.own_forms import read_parquet
from jaxrag.types import InputError


def test_rows_have_the_types_of_json(tmp_path):
    rows = [
        {"id": "a", "cop": 1, "exp": None, "n": ["x"]},
        {"id": "b", "cop": 0, "exp": "", "n": []},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    found = list(read_parquet(tmp_path / "rows.parquet"))
    assert [row.fields for row in found] == rows
    with pytest.raises(InputError, match=r"rows\.parquet, row 1: field 'exp' is null"):
        found[0].string("exp")
