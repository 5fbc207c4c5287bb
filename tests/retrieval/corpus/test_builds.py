from pathlib import Path

import numpy as np
import pytest

from jaxrag.retrieval.corpus import builds
from jaxrag.retrieval.corpus.builds import write_arrays

VECTORS = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float16)


class PowerCut(Exception):
    pass


def write(path: Path, rows: range, *, block: int, cut_after: float = np.inf) -> list[int]:
    """Writes a shard of VECTORS; returns the rows that had to be made."""
    made = []

    def make(ranges):
        for some in ranges:
            for start in range(0, len(some), block):
                if len(made) >= cut_after:
                    raise PowerCut
                made.extend(some[start : start + block])
                yield VECTORS[made[-1] + 1 - len(some[start : start + block]) : made[-1] + 1]

    advanced = []
    (file,) = write_arrays([(path, rows)], advanced.append, make=make, width=3, dtype="float16")
    assert file.name == path.name
    assert sum(advanced) == len(rows)
    return made


def interrupted(directory: Path) -> Path:
    """A shard of 40 rows cut after 3 chunks of 8."""
    path = directory / "part.npy"
    with pytest.raises(PowerCut):
        write(path, range(40), block=8, cut_after=24)
    return path


@pytest.mark.parametrize(
    ("name", "damage", "remade"),
    [
        ("part.npy.partial", lambda data: data[:-1], 24),  # the third chunk was torn
        ("part.npy.partial", lambda data: data + b"torn", 16),  # a fourth never finished
        ("part.npy.partial", lambda data: data[:130] + b"\xff\xff" + data[132:], 40),
        ("part.npy.partial", lambda data: b"", 40),
        ("part.npy.journal", lambda data: data[:-10], 24),
        ("part.npy.journal", lambda data: b"nonsense\n", 40),
        ("part.npy.journal", lambda data: b"", 40),
    ],
)
def test_only_undamaged_chunks_are_kept(tmp_path, name, damage, remade) -> None:
    path = interrupted(tmp_path)
    file = tmp_path / name
    file.write_bytes(damage(file.read_bytes()))
    assert len(write(path, range(40), block=8)) == remade
    assert np.array_equal(np.load(path), VECTORS[:40])


def test_an_unfinished_shard_of_another_shape_is_not_used(tmp_path) -> None:
    path = interrupted(tmp_path)
    assert len(write(path, range(39), block=8)) == 39
    assert np.array_equal(np.load(path), VECTORS[:39])


def test_one_stream_goes_over_all_files(tmp_path) -> None:
    asked, advanced = [], []

    def stream(ranges):
        asked.append(list(ranges))
        rows = np.concatenate([VECTORS[r.start : r.stop] for r in ranges])
        yield from np.split(rows, range(7, len(rows), 7))  # blocks know no files

    def build():
        files = [(tmp_path / f"{i}.npy", range(20 * i, 20 * i + 20)) for i in range(3)]
        done = write_arrays(files, advanced.append, make=stream, width=3, dtype="float16")
        return [file.name for file in done]

    assert build() == ["0.npy", "1.npy", "2.npy"]
    assert asked == [[range(20), range(20, 40), range(40, 60)]]
    assert advanced == [7, 7, 6, 1, 7, 7, 5, 2, 7, 7, 4]
    (tmp_path / "1.npy").rename(tmp_path / "1.npy.partial")
    journal = builds.journal_of(tmp_path / "1.npy")
    (tmp_path / "0.npy").unlink()
    advanced.clear()
    assert build() == ["0.npy", "1.npy", "2.npy"] and journal.exists()
    assert asked[1] == [range(20)] and advanced == [40, 7, 7, 6]
    for i in range(3):
        np.testing.assert_array_equal(np.load(tmp_path / f"{i}.npy"), VECTORS[20 * i : 20 * i + 20])
