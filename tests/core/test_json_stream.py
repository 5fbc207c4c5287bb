"""JSON arrays and objects read element by element: equal to json.loads, errors with the place."""

from __future__ import annotations

import contextlib
import gzip
import json
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.core.json_stream import read_elements
from jaxrag.types import InputError

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(st.text(), _VALUES, max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(_OBJECTS, max_size=5),
    chunk=st.integers(1, 40),
    indent=st.sampled_from([None, 1, "\t"]),
    ascii_only=st.booleans(),
)
def test_elements_are_those_of_json_loads(tmp_path_factory, rows, chunk, indent, ascii_only):
    path = tmp_path_factory.mktemp("stream") / "rows.json"
    text = json.dumps(rows, indent=indent, ensure_ascii=ascii_only)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    if not ascii_only and any("\ud800" <= letter <= "\udfff" for letter in text):
        return
    found = list(read_elements(path, chunk=chunk))
    assert [element.fields for element in found] == json.loads(text)
    assert [element.number for element in found] == list(range(1, len(rows) + 1))


def test_packed_and_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "rows.json.gz"
    path.write_bytes(gzip.compress('\ufeff [{"a": "é"}]\n'.encode()))
    assert [element.fields for element in read_elements(path, chunk=3)] == [{"a": "é"}]


MALFORMED = {
    "": r"the beginning is followed by the end of the file where '\[' of a JSON array is needed",
    '{"a": 1}': r"the beginning is followed by '{' where '\[' of a JSON array is needed",
    "[1]": "element 1 is a number; an object is needed",
    '[{"a": 1} {"a": 2}]': r"element 1 is followed by '{' where '\]' of a JSON array is needed",
    '[{"a": 1},]': "element 2 is not JSON, or is cut short",
    '[{"é": 1}, {"b" 2}]': r"element 2 is not JSON, or is cut short \(Expecting ':' delimiter\)",
    '[{"a": 1}, {"b": "x': r"element 2 is not JSON, or is cut short \(Unterminated string",
    '[{"a": 1}, {"b": tru': "element 2 is not JSON, or is cut short",
    '[{"a": 1}': r"element 1 is followed by the end of the file where '\]'",
    "[]]": "the beginning is followed by ']' after the end",
    "[" + "[" * 100_000: "element 1 is nested too deeply",
}


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:24])
@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_malformed_files_are_refused_with_the_element(tmp_path, text, chunk):
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(InputError, match=MALFORMED[text]) as caught:
        list(read_elements(path, chunk=chunk))
    assert str(path) in str(caught.value)


@contextlib.contextmanager
def _little_memory() -> Iterator[None]:
    """At most 3 MB of Python's objects at a time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_a_malformed_element_stops_before_the_rest_is_read(tmp_path):
    """A wrong character in the middle of a large file is told at once, not at the end."""
    path = tmp_path / "rows.json"
    path.write_text('[{"a": 1}, {"a": oops},' + '{"a": 1},' * 1_000_000 + "{}]")
    with _little_memory(), pytest.raises(InputError, match="element 2 is not JSON"):  # of 9 MB
        list(read_elements(path, chunk=1000))


def test_memory_is_that_of_one_element(tmp_path):
    path = tmp_path / "rows.json"
    row = {"text": "word " * 2000}  # 10 kB
    with path.open("w") as stream:
        stream.write("[" + ",\n".join([json.dumps(row)] * 2000) + "]")
    with _little_memory():  # of 20 MB
        assert sum(1 for _ in read_elements(path, chunk=1 << 16)) == 2000
