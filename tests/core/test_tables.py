"""Tables: quoting, packing, headers; errors with file, line and column."""

from __future__ import annotations

import csv
import gzip
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.core.tables import read_table
from jaxrag.types import InputError

# NUL and lone surrogates have no place in such files; "\r" ends a line for the csv module
_CELLS = st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]))


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(_CELLS, _CELLS), min_size=1, max_size=6), packed=st.booleans())
def test_quoted_cells_are_those_that_the_csv_module_wrote(tmp_path_factory, rows, packed):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(rows)
    path = tmp_path_factory.mktemp("tables") / "rows.tsv"
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    found = read_table(path, columns=("a", "b"), quoted=True)
    assert [tuple(row.fields.values()) for row in found] == rows


def test_lines_are_those_on_which_rows_begin(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_bytes(b'\xef\xbb\xbfid\ttext\r\n1\t"a\nb"\r\n2\tc\r\n')
    rows = list(read_table(path, quoted=True))
    assert [(row.number, row.fields) for row in rows] == [
        (2, {"id": "1", "text": "a\nb"}),
        (4, {"id": "2", "text": "c"}),
    ]


def test_damaged_rows_are_left_out_and_counted(tmp_path, caplog):
    path = tmp_path / "rows.tsv"
    path.write_text("id\ttext\n1\tone\nbroken\n2\ttwo\nalso\tbroken\there\n")
    rows = list(read_table(path, quoted=True, ragged=True))
    assert [row.fields["id"] for row in rows] == ["1", "2"]
    assert "left out 2 rows that have not 2 columns; the first is on line 3" in caplog.text


MALFORMED = {
    "columns": (b"id\ttext\n1\n", r"line 2: 1 columns; 2 are needed \(id, text\)"),
    "header": (b"id\tid\n1\t2\n", "line 1: column 'id' occurs twice"),
    "wide header": (
        b"\t".join(map(b"%d".__mod__, range(200_000))) + b"\t199999\n",
        "twice in the h",
    ),
    "encoding": (b"id\ttext\n1\t\xe9\n", "line 2: not UTF-8"),
    "open quote": (b'id\ttext\n1\t"open\n2\tb\n', "line 2: not a row in CSV quoting"),
    "quote inside": (b'id\ttext\n1\t"a" b\n', "line 2: not a row in CSV quoting"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_rows_are_refused_with_the_line(tmp_path, case):
    data, expected = MALFORMED[case]
    path = tmp_path / "rows.tsv"
    path.write_bytes(data)
    with pytest.raises(InputError, match=expected) as caught:
        list(read_table(path, quoted=True))
    assert str(path) in str(caught.value)
