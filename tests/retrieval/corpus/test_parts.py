"""Indexes that several processes or machines build in parts have the bytes of one process's."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxrag.core.durable_files import LockedError, exclusive_directory, shared_directory
from jaxrag.retrieval.corpus.builds import WHOLE, BuildPart
from jaxrag.retrieval.corpus.manifest import NAME, read_manifest, state_of
from jaxrag.retrieval.dense.matrix import open_matrix, write_matrix
from jaxrag.types import InputError
from tests.retrieval.corpus import build_part
from tests.retrieval.fakes import FakeEncoder, FakePassages

KINDS = ["matrix", "sparse", "bag_of_tokens"]
COUNT = 70  # rows: eight files, the last smaller


def build(directory, part=WHOLE, *, encoder=None, rows=9):
    encoder = encoder or FakeEncoder()
    write_matrix(FakePassages(COUNT), encoder, directory, shard_rows=rows, part=part)
    return encoder.encoded


def contents(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir() if not p.name.startswith(".lock")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    build(directory)
    return contents(directory)


@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_the_last_part_closes_the_index(tmp_path, whole, count):
    order = [*range(1, count), 0]
    encoded = []
    for number in order:
        assert (tmp_path / NAME).exists() is False
        encoded.append(build(tmp_path, BuildPart(number, count)))
    assert sum(encoded) == COUNT
    # files 0 to 6 have 9 rows, file 7 has 7: of two parts the first has 0, 2, 4, 6
    assert count != 2 or encoded == [34, 36]
    assert contents(tmp_path) == whole
    assert build(tmp_path) == 0 == build(tmp_path, BuildPart(0, 2))
    assert contents(tmp_path) | {"manifest-0-of-2.json": b""} == whole | {
        "manifest-0-of-2.json": b""
    }


def test_a_dead_machines_files_are_found_and_built_by_the_whole_build(tmp_path, whole):
    assert build(tmp_path, BuildPart(0, 2)) == 36
    with contextlib.suppress(RuntimeError):
        build(tmp_path, BuildPart(1, 2), encoder=FakeEncoder(fails_after=20, block=9))
    assert "holds parts of an index" in state_of(tmp_path, "matrix")
    with pytest.raises(InputError, match=r"holds parts of an index; a build without --shard"):
        open_matrix(tmp_path, FakePassages(COUNT), FakeEncoder())
    (tmp_path / "vectors-00002.npy").write_bytes(b"torn")
    # file 2 was damaged, and of 1, 3, 5, 7 the first two are there
    assert build(tmp_path) == 9 + 9 + 7
    assert not list(tmp_path.glob(".lock-*"))
    assert contents(tmp_path) == whole


def test_a_part_that_died_goes_on(tmp_path, whole):
    with contextlib.suppress(RuntimeError):
        build(tmp_path, BuildPart(1, 2), encoder=FakeEncoder(fails_after=20, block=9))
    assert build(tmp_path, BuildPart(1, 2)) == 34 - 2 * 9
    # with another number of machines, what is there is left out: 0, 2, 4 and 6 are missing
    assert [build(tmp_path, BuildPart(i, 3)) for i in range(3)] == [18, 9, 9]
    assert contents(tmp_path) == whole


def test_parts_that_were_copied_into_one_directory_are_joined(tmp_path, whole):
    here, other = tmp_path / "here", tmp_path / "other"
    build(here, BuildPart(0, 2))
    build(other, BuildPart(1, 2))
    (other / "vectors-00003.npy").write_bytes((other / "vectors-00001.npy").read_bytes())
    shutil.copytree(other, here, dirs_exist_ok=True)
    assert build(here) == 9  # one file had the bytes of another
    assert contents(here) == whole


def test_locks_keep_builds_apart(tmp_path):
    with shared_directory(tmp_path, 0, 2):
        with shared_directory(tmp_path, 1, 2):
            pass
        with pytest.raises(LockedError, match="building part 0 of 2 of an index"):
            build(tmp_path, BuildPart(0, 2))
        with pytest.raises(LockedError, match="another process is building an index"):
            build(tmp_path)
        with pytest.raises(LockedError, match="building part 0 of 2"):
            build(tmp_path, BuildPart(1, 3))
    with exclusive_directory(tmp_path), pytest.raises(LockedError):
        build(tmp_path, BuildPart(1, 2))
    assert build(tmp_path, BuildPart(1, 3)) > 0


# Processes of their own


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    here = tmp_path_factory.mktemp("made")
    build_part.make(here)
    return here


def started(here, kind, directory, *more, devices=1):
    command = [sys.executable, "-m", "tests.retrieval.corpus.build_part", here, kind, directory]
    flags = f"--xla_force_host_platform_device_count={devices}"
    # XLA's matrix products depend on the number of its threads, which is at least that of devices
    environment = {**os.environ, "XLA_FLAGS": flags, "NPROC": "8", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [*map(str, [*command, *more])], env=environment, stdout=subprocess.PIPE, text=True
    )


def finished(process):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return int(output.splitlines()[-1])  # Gloo prints lines of its own before


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_devices_and_processes_write_the_bytes_of_one(made, tmp_path, kind):
    for devices in (1, 2, 8):
        directory = tmp_path / f"{devices}"
        assert finished(started(made, kind, directory, devices=devices)) == devices
    one = contents(tmp_path / "1")
    assert len(one) == 11 and contents(tmp_path / "2") == one == contents(tmp_path / "8")
    both = [started(made, kind, tmp_path / "both", i, 2, devices=i + 1) for i in (0, 1)]
    assert [finished(process) for process in both] == [1, 2]
    assert contents(tmp_path / "both") == one
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    both = [started(made, kind, tmp_path / "joined", i, 2, port, devices=4) for i in (0, 1)]
    assert [finished(process) for process in both] == [4, 4]
    assert contents(tmp_path / "joined") == one


@pytest.mark.slow
def test_a_killed_process_is_started_again(made, tmp_path):
    assert finished(started(made, "matrix", tmp_path / "one")) == 1
    shared = tmp_path / "shared"
    first, second = (started(made, "matrix", shared, i, 2) for i in (0, 1))
    until = time.monotonic() + 120
    while not (shared / "manifest-1-of-2.json").exists():
        assert time.monotonic() < until and second.poll() is None
        time.sleep(0.002)
    second.send_signal(signal.SIGKILL)
    second.communicate()
    finished(first)
    assert not read_part(shared).complete and not (shared / NAME).exists()
    assert finished(started(made, "matrix", shared, 1, 2)) == 1
    assert contents(shared) == contents(tmp_path / "one")


def read_part(directory):
    return read_manifest(directory, "matrix", name="manifest-1-of-2.json")
