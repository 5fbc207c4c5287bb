"""The contract of every directory that is built in pieces: corpora, indexes, imported vectors.

Killed at any write, or out of space there, and built again, it has the bytes of a build that was
never interrupted, and what was made is not made again. A finished one is kept; one of another
source is refused; a damaged file is found, and made again alone.
"""

import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxrag.retrieval.bm25.index import Bm25, Bm25Index
from jaxrag.retrieval.corpus import builds
from jaxrag.retrieval.corpus import rows as row_files
from jaxrag.retrieval.corpus.manifest import state_of
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.dense.matrix import open_matrix
from jaxrag.retrieval.dense.scann import index as scann_index
from jaxrag.retrieval.dense.scann import tree
from jaxrag.retrieval.dense.scann.index import ScannIndex
from jaxrag.retrieval.dense.scann.tree import ScannSettings, Tree, train
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens, write_bag_of_tokens
from jaxrag.retrieval.sidr.sparse import SparseIndex, write_sparse
from jaxrag.retrieval.wiki_dpr.index import import_published
from jaxrag.retrieval.wiki_dpr.sources import ParquetVectors
from jaxrag.types import InputError
from tests.interruptions import stopped
from tests.retrieval.fakes import FakeEncoder, FakePassages, blocks_of, build_matrix

COUNT, ROWS = 30, 10  # of three files
TEXTS = FakePassages(COUNT, [str(i) for i in range(COUNT)])
OTHER = FakePassages(COUNT, [str(i) for i in range(COUNT)], "other")


@dataclasses.dataclass(frozen=True)
class Client:
    """A kind of directory.

    Attributes:
      build: builds one, or goes on with it; notes the rows that it makes.
      open: opens a finished one.
      others: builds of another source, or with other settings, and what names the difference.
      repairs: building again replaces damaged files; else the directory is to be removed.
      pieces: how many outlive a kill, each by itself.
      every: of its writes, which one is stopped; then not all pieces are seen.
    """

    build: Callable[[Path, list[int]], object]
    open: Callable[[Path], object]
    others: dict[str, Callable[[Path], object]]
    repairs: bool = True
    pieces: int = 9
    every: int = 1


class Bags:
    """A tokenizer that notes what it makes."""

    max_length, vocabulary = 64, 40

    def __init__(self, made: list[int], name: str = "given") -> None:
        self.made, self.identity = made, json.dumps({"bag": {"tokenizer": name}})

    def tokens(self, passages: Any) -> list[np.ndarray]:
        self.made += [int(passage.text) for passage in passages]
        return [np.arange(int(p.text) % 7, dtype=np.uint16) for p in passages]


def matrix(here: Path) -> Client:
    def build(directory: Path, made: list[int], texts: Any = TEXTS, rows: int = ROWS, **named: Any):
        encoder = FakeEncoder(block=4, **named)
        embed = encoder.embed_passages

        def noted(passages: Any) -> np.ndarray:
            vectors = embed(passages)
            made.extend(int(passage.text) for passage in passages)
            return vectors

        encoder.embed_passages = noted
        build_matrix(texts, encoder, directory, shard_rows=rows)

    return Client(
        build,
        lambda directory: open_matrix(directory, TEXTS, FakeEncoder()),
        {
            "encoder.model: the index has 'fake', this run has 'x'": lambda d: build(
                d, [], name="x"
            ),
            "passages.identity: the index has 'fake'": lambda d: build(d, [], OTHER),
            "shard_rows: the index has 10, this run has 11": lambda d: build(d, [], rows=11),
        },
    )


def bag_of_tokens(here: Path) -> Client:
    def build(directory: Path, made: list[int], texts: Any = TEXTS, rows: int = ROWS, **named: Any):
        write_bag_of_tokens(texts, Bags(made, **named), directory, shard_rows=rows)

    return Client(
        build,
        lambda directory: BagOfTokens.open(directory, TEXTS, Bags([])),
        {
            "tokenizer.bag.tokenizer: the index has 'given', this run has 'x'": lambda d: build(
                d, [], name="x"
            ),
            "passages.identity: the index has 'fake'": lambda d: build(d, [], OTHER),
            "shard_rows: the index has 10, this run has 11": lambda d: build(d, [], rows=11),
        },
        pieces=3,
    )


def sparse(here: Path) -> Client:
    def build(directory: Path, made: list[int], texts: Any = TEXTS, name: str = "given") -> None:
        def entries(passages: Any):
            for some in blocks_of(passages, 4):
                made.extend(int(one.text) for one in some)
                numbers = np.array([int(one.text) for one in some])[:, None]
                yield (
                    np.tile(np.arange(7, dtype=np.uint16), (len(some), 1)),
                    (np.ones((1, 7), np.float32) * numbers),
                )

        identity = json.dumps({"model": name}, separators=(",", ":"))
        write_sparse(texts, entries, identity, directory, vocabulary=30, length=7, shard_rows=ROWS)

    return Client(
        build,
        lambda directory: SparseIndex.open(directory, TEXTS, '{"model":"given"}'),
        {
            "encoder.model: the index has 'given', this run has 'x'": lambda d: build(
                d, [], name="x"
            ),
            "passages.identity: the index has 'fake'": lambda d: build(d, [], OTHER),
        },
    )


def check(directory: Path, kind: str) -> None:
    """What opening it finds wrong with an index that opening builds or repairs."""
    if (state := state_of(directory, kind, verify=True)) != "built":
        raise InputError(state)


def bm25(here: Path) -> Client:
    pytest.importorskip("bm25s")
    words = FakePassages(3, ["the cat sat", "a cat on mats", "dogs bark"])
    other = FakePassages(3, ["the cat sat", "a cat on mats", "dogs bark"], "other")
    return Client(
        lambda directory, made: Bm25Index.open(directory, words),
        lambda directory: check(directory / "bm25", "bm25"),
        {
            "passages.identity: the index has 'fake'": lambda d: Bm25Index.open(d, other),
            "settings.k1: the index has 0.9, this run has 1.2": lambda d: Bm25Index.open(
                d, words, settings=Bm25(k1=1.2)
            ),
        },
        pieces=0,
    )


def scann(here: Path) -> Client:
    """A tree, and leaves and codes of the rows, beside a matrix."""
    pytest.importorskip("scann")
    settings, trained = ScannSettings(leaves=4, shard_rows=ROWS), here / "tree"

    def trained_once(*given: Any) -> None:
        if not trained.exists():
            train(*given[:-1], trained)
        shutil.copytree(trained, given[-1])

    def build(directory: Path, made: list[int], texts: Any = TEXTS) -> None:
        def noted(name: str) -> Callable[..., np.ndarray]:
            real = getattr(Tree, name)

            def compute(own: Tree, *given: Any) -> np.ndarray:
                made.extend(range(len(given[0])))
                return real(own, *given)

            return compute

        build_matrix(texts, FakeEncoder(), directory)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("leaves", "codes"):
                patch.setattr(Tree, name, noted(name))
            patch.setattr(scann_index, "train", trained_once)
            patch.setattr(tree, "BATCH", 64)
            ScannIndex.open(directory, FakeEncoder(), texts, settings=settings, leaves_to_search=4)

    def opened(directory: Path) -> None:
        open_matrix(directory, TEXTS, FakeEncoder())
        for part in ("tree", "leaves", "codes"):
            folder = next(directory.glob("scann-*"), directory / "scann")
            check(folder / part, f"scann {part}")

    others = {"passages.identity: the index has 'fake'": lambda d: build(d, [], OTHER)}
    return Client(build, opened, others, every=5)


def published_vectors(here: Path) -> Client:
    source, other = here / "source", here / "other"
    for folder, seed in ((source, 0), (other, 1)):
        folder.mkdir()
        vectors = np.random.default_rng(seed).standard_normal((COUNT, 8)).astype(np.float32)
        texts = {name: [f"{name} {i}" for i in range(COUNT)] for name in ("id", "text", "title")}
        table = pa.table({**texts, "embeddings": vectors.tolist()})
        table = table.set_column(3, "embeddings", table[3].cast(pa.list_(pa.float32())))
        pq.write_table(table, folder / "a.parquet")

    def build(directory: Path, made: list[int], published: Path = source) -> None:
        read = ParquetVectors.vectors

        def noted(own: ParquetVectors, rows: range) -> np.ndarray:
            made.extend(rows)
            return read(own, rows)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ParquetVectors, "vectors", noted)
            import_published(published, directory, dimension=8, shard_rows=ROWS)

    def opened(directory: Path) -> None:
        check(directory / "vectors", "matrix")
        Passages.open(directory / "passages")

    others = {"made from something else": lambda d: build(d, [], other)}
    return Client(build, opened, others, every=3)


def corpus(here: Path) -> Client:
    rows = list(FakePassages(COUNT).rows)
    return Client(
        lambda directory, made: (
            None if directory.exists() else write_passages(directory, iter(rows))
        ),
        Passages.open,
        {"holds something already": lambda d: write_passages(d, iter(rows[::-1]))},
        repairs=False,
        pieces=0,
    )


CLIENTS = {
    one.__name__: one
    for one in (matrix, bag_of_tokens, sparse, bm25, scann, published_vectors, corpus)
}


@pytest.fixture(params=CLIENTS)
def client(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Each kind of directory, in files of ten rows; every block reaches the disk by itself."""
    monkeypatch.setattr(builds, "_CHUNK", 4)
    monkeypatch.setattr(row_files, "_ROWS_PER_FILE", ROWS)
    monkeypatch.setattr(row_files, "default_workers", lambda: 0)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # which is slow, and changes no content
    (tmp_path / "from").mkdir()
    return CLIENTS[request.param](tmp_path / "from")


def contents(directory: Path) -> dict[str, bytes]:
    """The files by name, but for locks, and journals of ScaNN's, which may outlive a kill."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    found = {str(path.relative_to(directory)): path.read_bytes() for path in sorted(files)}
    return {k: v for k, v in found.items() if not ("scann-" in k and k.endswith(".journal"))}


@pytest.mark.parametrize("fault", ["killed", "full"])
def test_killed_at_each_write_or_out_of_space_it_goes_on(client, tmp_path, fault) -> None:
    whole: list[int] = []
    error = KeyboardInterrupt() if fault == "killed" else OSError(errno.ENOSPC, "No space left")
    client.build(tmp_path / "first", [])  # after which all is compiled, and a tree trained
    writes = stopped(lambda: client.build(tmp_path / "whole", whole), float("inf"), error)
    expected = contents(tmp_path / "whole")
    assert writes > 3 and expected
    rest: list[int] = []
    for at in range(0, writes, client.every):
        begun, made = list[int](), list[int]()
        directory = tmp_path / f"at {at}"
        stopped(lambda: client.build(directory, begun), at, error)  # noqa: B023
        client.build(directory, made)
        client.open(directory)
        assert contents(directory) == expected, at
        assert client.every == 1 or len(begun) + len(made) <= len(whole) + ROWS
        rest.append(len(made))
        shutil.rmtree(directory)
    # the more was written, the less is made again
    assert rest == sorted(rest, reverse=True) and rest[0] == len(whole)
    assert client.every > 1 or (rest[-1] == 0 and len({*rest}) == client.pieces + 1)


def test_an_unfinished_one_is_not_opened(client: Client, tmp_path: Path) -> None:
    error = KeyboardInterrupt()
    writes = stopped(lambda: client.build(tmp_path / "whole", []), float("inf"), error)
    stopped(lambda: client.build(tmp_path / "d", []), writes // 2, error)
    with pytest.raises(
        InputError, match=r"incomplete.*goes on|unfinished|does not exist|not built yet"
    ):
        client.open(tmp_path / "d")


def test_a_finished_one_is_kept(client: Client, tmp_path: Path) -> None:
    client.build(tmp_path / "d", [])
    before, made = contents(tmp_path / "d"), []
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "d").rglob("*.npy")}
    client.build(tmp_path / "d", made)
    client.open(tmp_path / "d")
    assert not made and contents(tmp_path / "d") == before
    assert all(path.stat().st_mtime_ns == at for path, at in times.items())


def test_another_source_is_refused(client: Client, tmp_path: Path) -> None:
    client.build(tmp_path / "d", [])
    before = contents(tmp_path / "d")
    for told, build in client.others.items():
        with pytest.raises(InputError) as refused:
            build(tmp_path / "d")
        assert told in str(refused.value) and str(tmp_path / "d") in str(refused.value)
    assert contents(tmp_path / "d") == before
    client.open(tmp_path / "d")


DAMAGE: dict[str, Callable[[Path], object]] = {  # by what is told of it
    "hash differs": lambda file: file.write_bytes(
        file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1])
    ),
    "bytes instead of": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_found_and_made_again(client, tmp_path, damage) -> None:
    client.build(tmp_path / "d", [])
    whole = contents(tmp_path / "d")
    files = [name for name in whole if name.endswith(".npy") or "array_record-" in name]
    files = [name for name in files if not name.startswith("passages/")]  # those of a corpus
    assert files
    for name in files:
        file, made, told = tmp_path / "d" / name, [], rf"{name}.*{damage}"
        DAMAGE[damage](file)
        if client.repairs or damage != "hash differs":  # a row's bit is found when it is read
            with pytest.raises(InputError, match=told):
                client.open(tmp_path / "d")
        if not client.repairs:
            shutil.rmtree(tmp_path / "d")
        client.build(tmp_path / "d", made)
        assert contents(tmp_path / "d") == whole
        assert len(made) <= ROWS


# the size of a corpus is known when it is written
@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "corpus"], indirect=True)
def test_too_little_space_is_told_before_anything_is_made(client, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("usage", (), {"free": 10}))
    made: list[int] = []
    with pytest.raises(InputError, match=r"0\.00 GB left.*free some space"):
        client.build(tmp_path / "d", made)
    assert not made
