import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.retrieval.corpus import builds
from jaxrag.retrieval.corpus.builds import write_shard

VECTORS = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float16)


class PowerCut(Exception):
    pass


def write(
    path: Path, rows: range, *, chunk_rows: int | None, cut_after: float = np.inf
) -> list[int]:
    """Writes a shard of VECTORS; returns the rows that had to be made."""
    made = []

    def make(chunk: range) -> np.ndarray:
        if len(made) >= cut_after:
            raise PowerCut
        made.extend(chunk)
        return VECTORS[chunk.start : chunk.stop]

    advanced = []
    write_shard(
        path,
        rows,
        make,
        width=3,
        dtype="float16",
        chunk_rows=chunk_rows,
        advance=advanced.append,
    )
    assert sum(advanced) == len(rows)
    return made


@settings(max_examples=30, deadline=None)
@given(
    start=st.integers(0, 20),
    count=st.integers(1, 40),
    chunks=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    cut_after=st.integers(0, 45),
)
def test_a_resumed_build_writes_the_same_file(start, count, chunks, cut_after) -> None:
    rows = range(start, start + count)
    with tempfile.TemporaryDirectory() as directory:
        path, whole = Path(directory) / "part.npy", Path(directory) / "whole.npy"
        try:
            write(path, rows, chunk_rows=chunks[0], cut_after=cut_after)
        except PowerCut:
            first = len(rows) - len(write(path, rows, chunk_rows=chunks[1]))
            # whole chunks survive, and no more than what was made
            assert first == min(-(-cut_after // chunks[0]) * chunks[0], count)
        np.save(whole, VECTORS[rows.start : rows.stop])
        assert path.read_bytes() == whole.read_bytes()
        names = {path.name for path in Path(directory).iterdir()}
        assert names == {"part.npy", "part.npy.journal", "whole.npy"}


def test_a_finished_file_is_kept_if_its_journal_exists(tmp_path) -> None:
    path = tmp_path / "part.npy"
    write(path, range(40), chunk_rows=8)
    assert write(path, range(40), chunk_rows=8) == []
    builds.journal_of(path).unlink()  # without it, the file is of unknown origin
    assert len(write(path, range(40), chunk_rows=8)) == 40


def interrupted(directory: Path) -> Path:
    """A shard of 40 rows cut after 3 chunks of 8."""
    path = directory / "part.npy"
    with pytest.raises(PowerCut):
        write(path, range(40), chunk_rows=8, cut_after=24)
    return path


@pytest.mark.parametrize(
    ("name", "damage", "remade"),
    [
        ("part.npy.partial", lambda data: data[:-1], 24),  # the third chunk was torn
        ("part.npy.partial", lambda data: data + b"torn", 16),  # a fourth never finished
        ("part.npy.partial", lambda data: data[:130] + b"\xff\xff" + data[132:], 40),
        ("part.npy.partial", lambda data: b"\x00" * len(data), 40),
        ("part.npy.partial", lambda data: b"", 40),
        ("part.npy.journal", lambda data: data[:-10], 24),
        ("part.npy.journal", lambda data: data + b"8", 16),
        ("part.npy.journal", lambda data: b"nonsense\n", 40),
        ("part.npy.journal", lambda data: b"", 40),
    ],
)
def test_only_undamaged_chunks_are_kept(tmp_path, name, damage, remade) -> None:
    path = interrupted(tmp_path)
    file = tmp_path / name
    file.write_bytes(damage(file.read_bytes()))
    assert len(write(path, range(40), chunk_rows=8)) == remade
    assert np.array_equal(np.load(path), VECTORS[:40])


def test_an_unfinished_shard_of_another_shape_is_not_used(tmp_path) -> None:
    path = interrupted(tmp_path)
    assert len(write(path, range(39), chunk_rows=8)) == 39
    assert np.array_equal(np.load(path), VECTORS[:39])


def test_chunks_grow_while_they_are_fast(tmp_path, monkeypatch) -> None:
    clock = iter(range(0, 1000, 2))  # each look at the clock takes 2 seconds
    monkeypatch.setattr(builds.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(builds, "_FIRST", 4)
    monkeypatch.setattr(builds, "_MOST", 16)
    sizes = []
    arguments = {"width": 3, "dtype": "float16", "chunk_rows": None, "advance": sizes.append}
    made = write_shard(
        tmp_path / "x.npy", range(64), lambda r: VECTORS[r.start : r.stop], **arguments
    )
    assert made.bytes == 128 + 64 * 3 * 2
    assert sizes == [0, 4, 8, 16, 16, 16, 4]
    monkeypatch.setattr(builds, "_SECONDS", 1.0)
    sizes.clear()
    write_shard(tmp_path / "y.npy", range(12), lambda r: VECTORS[r.start : r.stop], **arguments)
    assert sizes == [0, 4, 4, 4]
