"""Rows on disk: exact bytes, content hashes, processes that write, and builds that break."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import tensorflow_datasets as tfds
from hypothesis import strategies as st
from tensorflow_datasets.core.dataset_info import DatasetIdentity
from tensorflow_datasets.core.example_serializer import ExampleSerializer
from tensorflow_datasets.proto import tf_example_pb2

from jaxrag.retrieval.corpus import rows as row_files
from jaxrag.retrieval.corpus import shards
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.types import InputError, Passage

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
FIELDS = {"id": str, "title": str, "aliases": list}
FEATURES = tfds.features.FeaturesDict(
    {
        "id": tfds.features.Text(),
        "title": tfds.features.Text(),
        "aliases": tfds.features.Sequence(tfds.features.Text()),
    }
)


def row(number: int) -> dict[str, Any]:
    return {"id": f"r{number}", "title": f"é {number}", "aliases": ["a", "b"][: number % 3]}


def build(directory: Path, count: int, *, workers: int = 2, rows: Any = None) -> None:
    stream = map(row, range(count)) if rows is None else rows
    row_files.write_rows(directory, {"some": stream}, kind="things", fields=FIELDS, workers=workers)


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def small_files(monkeypatch):
    monkeypatch.setattr(row_files, "_ROWS_PER_FILE", 10)


def by_tfds(one: dict[str, Any]) -> bytes:
    serializer = ExampleSerializer(FEATURES.get_serialized_info())
    return serializer.serialize_example(FEATURES.encode_example(one))


@hypothesis.settings(deadline=None)
@hypothesis.given(TEXT, TEXT, st.lists(TEXT, max_size=3))
def test_examples_are_those_of_tfds(name, title, aliases):
    one = {"id": name, "title": title, "aliases": aliases}
    parse = tf_example_pb2.Example.FromString
    assert parse(row_files.serialize(one)) == parse(by_tfds(one))


def test_the_identity_is_the_hash_of_canonical_rows(tmp_path):
    build(tmp_path / "d", 2)
    lines = (
        '"some"\n{"aliases": [], "id": "r0", "title": "é 0"}\n'
        '{"aliases": ["a"], "id": "r1", "title": "é 1"}\n'
    )
    manifest = row_files.read_manifest(tmp_path / "d", kind="things")
    assert manifest.identity == hashlib.sha256(lines.encode()).hexdigest()


def test_a_directory_of_tfds_own_writer_is_read(tmp_path):
    """Directories were written by ``tfds.core.SequentialWriter`` before."""
    passages = [Passage(f"p{i}", "T", f"text {i}") for i in range(25)]
    ours = write_passages(tmp_path / "ours", passages).directory
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    text = tfds.features.Text
    info = tfds.core.DatasetInfo(
        builder=DatasetIdentity(
            name="passages",
            version=tfds.core.Version("1.0.0"),
            data_dir=str(theirs),
            module_name="jaxrag",
        ),
        description="jaxrag passages",
        features=tfds.features.FeaturesDict({"id": text(), "title": text(), "text": text()}),
        disable_shuffling=True,
    )
    writer = tfds.core.SequentialWriter(info, max_examples_per_shard=10, file_format="array_record")
    writer.initialize_splits(["corpus"])
    writer.add_examples({"corpus": [vars(passage) for passage in passages]})
    writer.close_all()
    manifest = json.loads((ours / row_files.MANIFEST).read_text())
    for name in ("ids.npy", "id_rows.npy"):
        (theirs / name).write_bytes((ours / name).read_bytes())
    manifest["files"] = {path.name: path.stat().st_size for path in theirs.iterdir()}
    del manifest["description"]  # as written before
    (theirs / row_files.MANIFEST).write_text(json.dumps(manifest))
    opened = Passages.open(theirs)
    assert list(opened) == passages
    assert opened.identity == Passages.open(ours).identity
    # TFDS describes both alike, but for the division into files
    described = [json.loads((one / "dataset_info.json").read_text()) for one in (ours, theirs)]
    for one in described:
        assert sum(map(int, one["splits"][0].pop("shardLengths"))) == 25
    assert described[0] == described[1]
    assert (ours / "features.json").read_text() == (theirs / "features.json").read_text()


@pytest.mark.usefixtures("small_files")
def test_bytes_are_the_same_with_any_number_of_workers(tmp_path):
    for workers in (0, 1, 3):
        build(tmp_path / str(workers), 47, workers=workers)
    found = [content(tmp_path / str(workers)) for workers in (0, 1, 3)]
    assert found[0] == found[1] == found[2]
    assert sum("array_record" in name for name in found[0]) == 5  # 10 + 10 + 10 + 10 + 7
    source = tfds.builder_from_directory(str(tmp_path / "3")).as_data_source(split="some")
    assert [one["id"].decode() for one in source] == [f"r{i}" for i in range(47)]


def test_files_end_by_size_too(tmp_path, monkeypatch):
    monkeypatch.setattr(row_files, "_BYTES_PER_FILE", 1000)
    long = [{"id": str(i), "title": "x" * 200, "aliases": []} for i in range(10)]
    build(tmp_path / "d", 10, workers=0, rows=long)
    # a line has 200 characters and some 40 of names and quotes
    lengths = json.loads((tmp_path / "d" / "dataset_info.json").read_text())
    assert lengths["splits"][0]["shardLengths"] == ["5", "5"]


@pytest.fixture
def in_writers(tmp_path, monkeypatch):
    """Makes every writing process run some code when it starts."""

    def run(code: str) -> None:
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(site))

    return run


@pytest.mark.usefixtures("small_files")
def test_writing_processes_load_neither_jax_nor_tfds(tmp_path, in_writers):
    report = tmp_path / "modules"
    in_writers(
        "import atexit, sys\n"
        f"atexit.register(lambda: open({str(report)!r}, 'w').write(' '.join(sys.modules)))\n"
    )
    build(tmp_path / "d", 12)
    loaded = set(report.read_text().split())
    assert "array_record" in loaded
    assert not loaded & {"jax", "tensorflow_datasets", "tensorflow", "numpy"}


ONCE = """
import os, sys
if os.path.exists({marker!r}):
    os.unlink({marker!r})
    {fault}
"""
FULL = """
    class Full:
        def __init__(self, *path): pass
        def write(self, example): raise RuntimeError("write: No space left on device")
    from array_record.python import array_record_module
    array_record_module.ArrayRecordWriter = Full
"""


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("os.kill(os.getpid(), 9)", r"writing process was killed \(signal 9\).*run the same"),
        (FULL, r"disk that holds .* is full; finished work is kept"),
    ],
)
def test_a_writer_that_fails_is_told_and_finished_files_are_kept(tmp_path, in_writers, fault, says):
    build(tmp_path / "whole", 47)
    marker = tmp_path / "marker"
    in_writers(ONCE.format(marker=str(marker), fault=fault))

    def stream() -> Iterator[dict[str, Any]]:
        for number in range(47):
            if number == 30:  # with one worker, the first file is finished by then
                marker.touch()
            yield row(number)

    with pytest.raises(InputError, match=says):
        build(tmp_path / "d", 47, workers=1, rows=stream())
    assert shards.read_record(tmp_path / ".d.partial")
    build(tmp_path / "d", 47)
    assert content(tmp_path / "d") == content(tmp_path / "whole")
    assert not (tmp_path / ".d.partial").exists()


def _build_slowly(directory: Path, count: int, pause: float) -> None:
    row_files._ROWS_PER_FILE = 10

    def stream() -> Iterator[dict[str, Any]]:
        for number in range(count):
            time.sleep(pause)
            yield row(number)

    build(directory, count, rows=stream())


@pytest.mark.usefixtures("small_files")
def test_the_next_build_waits_for_writers_that_a_killed_one_left(
    tmp_path, in_writers, monkeypatch, caplog
):
    build(tmp_path / "whole", 25)
    started = tmp_path / "started"
    in_writers(
        "import pathlib, sys, time\n"
        "if 'jaxrag.retrieval.corpus.shards' in sys.orig_argv:\n"
        f"    pathlib.Path({str(started)!r}).touch()\n"
        "    time.sleep(1.5)\n"
    )
    builder = multiprocessing.get_context("spawn").Process(
        target=_build_slowly, args=(tmp_path / "d", 83, 0.01)
    )
    builder.start()
    wait_until(started.exists)
    builder.kill()
    builder.join()
    monkeypatch.delenv("PYTHONPATH")
    build(tmp_path / "d", 25)
    assert "same rows: waiting for" in caplog.text
    assert content(tmp_path / "d") == content(tmp_path / "whole")


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Stopped(Exception):
    pass


def stop_after(count: int) -> Iterator[dict[str, Any]]:
    yield from map(row, range(count))
    raise Stopped


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("damage", ["content", "cut", "missing", "record"])
def test_a_finished_file_that_was_damaged_is_written_again(tmp_path, damage):
    build(tmp_path / "whole", 35)
    partial = tmp_path / ".d.partial"
    with pytest.raises(Stopped):
        build(tmp_path / "d", 35, rows=stop_after(45))
    file, record = partial / "things-some.array_record-00001", partial / shards.RECORD
    assert len(shards.read_record(partial)) == 4
    if damage == "content":
        file.write_bytes(file.read_bytes()[::-1])
    elif damage == "cut":
        os.truncate(file, 100)
    elif damage == "missing":
        file.unlink()
    else:
        os.truncate(record, record.stat().st_size - 10)
    build(tmp_path / "d", 35)
    assert content(tmp_path / "d") == content(tmp_path / "whole")


@pytest.mark.usefixtures("small_files")
def test_rows_that_changed_since_are_written_again(tmp_path):
    changed = [row(i) | ({"title": "new"} if i == 15 else {}) for i in range(25)]
    build(tmp_path / "whole", 25, rows=changed)
    with pytest.raises(Stopped):
        build(tmp_path / "d", 25, rows=stop_after(65))
    assert len(shards.read_record(tmp_path / ".d.partial")) == 6
    build(tmp_path / "d", 25, rows=changed)
    assert content(tmp_path / "d") == content(tmp_path / "whole")


@pytest.mark.usefixtures("small_files")
def test_splits_have_their_own_files_and_empty_ones_are_refused(tmp_path):
    splits = {"a": map(row, range(12)), "b": map(row, range(3))}
    found = row_files.write_rows(tmp_path / "d", splits, kind="things", fields=FIELDS)
    assert found.rows == {"a": 12, "b": 3}
    assert row_files.open_rows(tmp_path / "d", "b")([2])[0]["id"] == "r2"
    with pytest.raises(InputError, match="'b' is empty"):
        row_files.write_rows(tmp_path / "e", {"a": [row(0)], "b": []}, kind="things", fields=FIELDS)
    assert not (tmp_path / ".e.partial").exists()


def test_a_second_builder_waits_for_the_first(tmp_path, caplog):
    handle = row_files._lock(tmp_path / ".d.partial")
    second = threading.Thread(target=build, args=(tmp_path / "d", 3))
    second.start()
    wait_until(lambda: "same rows: waiting for" in caplog.text)
    (tmp_path / ".d.partial").rmdir()  # as the first does at its end
    os.close(handle)
    second.join()
    assert (tmp_path / "d").is_dir()


@pytest.mark.usefixtures("small_files")
def test_a_record_that_was_cut_short_goes_on_with_a_line_of_its_own(tmp_path):
    partial = tmp_path / ".d.partial"
    with pytest.raises(Stopped):
        build(tmp_path / "d", 35, rows=stop_after(45))
    os.truncate(partial / shards.RECORD, (partial / shards.RECORD).stat().st_size - 10)
    assert len(shards.read_record(partial)) == 3
    with pytest.raises(Stopped):
        build(tmp_path / "d", 35, rows=stop_after(45))
    assert len(shards.read_record(partial)) == 4


@pytest.mark.usefixtures("small_files")
def test_few_files_are_open_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(row_files, "_OPEN_FILES", 2)
    build(tmp_path / "d", 47)
    read = row_files.open_rows(tmp_path / "d", "some")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in (0, 40, 20, 1, 30, 46):
        assert read([number])[0]["id"] == f"r{number}"
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2


@pytest.mark.usefixtures("small_files")
def test_threads_read_at_once(tmp_path):
    build(tmp_path / "d", 47)
    read = row_files.open_rows(tmp_path / "d", "some")

    def check(seed: int) -> bool:
        draw = random.Random(seed)
        for _ in range(50):
            numbers = draw.choices(range(47), k=5)
            if [one["id"] for one in read(numbers)] != [f"r{number}" for number in numbers]:
                return False
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(check, range(16)))


@pytest.mark.parametrize("kept", [0, 8, 12, 17])
def test_rows_that_end_early_leave_no_file(kept: int, tmp_path: Path) -> None:
    """As when the process that sends them is killed: two rows, of 3 and 5 bytes."""
    sent = b"".join(n.to_bytes(8, "little") + row for n, row in [(2, b""), (3, b"abc"), (5, b"")])
    command = [sys.executable, "-m", "jaxrag.retrieval.corpus.shards", str(tmp_path / "file")]
    done = subprocess.run(command, input=sent[:kept], capture_output=True, check=False)
    assert done.returncode and b"end early" in done.stderr
    assert not (tmp_path / "file").exists()
