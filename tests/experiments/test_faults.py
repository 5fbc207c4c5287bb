"""Runs that meet a fault: one clear error, nothing lost, no wrong answer.

Processes that are killed have their tests in test_kill.py, servers that fail in test_server_run.py.
"""

import contextlib
import dataclasses
import io
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxrag.evaluation.records import read_run
from jaxrag.experiments.configuration import script
from jaxrag.experiments.run import main
from jaxrag.experiments.store import main as store_command
from tests.experiments.small_run import write_small_run
from tests.experiments.test_kill import start

QUESTIONS = 30


@dataclasses.dataclass(frozen=True)
class Small:
    """A small run: its config, the cache of a fault-free run, and that run's answers."""

    config: Path
    cache: Path
    answers: bytes


def run(config: Path, workdir: Path, cache: Path) -> tuple[int, str]:
    """Exit code and errors of the script, in this process."""
    flags = [f"--config={config}", f"--workdir={workdir}", f"--config.cache={cache}"]
    before, handler = sys.argv, signal.getsignal(signal.SIGTERM)
    errors = io.StringIO()
    try:
        sys.argv = ["run", *flags]
        with (
            contextlib.redirect_stderr(errors),
            contextlib.redirect_stdout(io.StringIO()),
            pytest.raises(SystemExit) as stop,
        ):
            script(main)
    finally:
        sys.argv = before
        signal.signal(signal.SIGTERM, handler)
    return stop.value.code, errors.getvalue()  # type: ignore[return-value]


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> Small:
    here = tmp_path_factory.mktemp("small")
    config = write_small_run(here, questions=QUESTIONS)
    assert run(config, here / "whole", here / "cache")[0] == 0
    return Small(config, here / "cache", (here / "whole" / "answers.jsonl").read_bytes())


# ---------------------------------------------------------------------------- a full disk


def mount(disk: Path, kilobytes: int, *options: str) -> None:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join([f"size={kilobytes}k", *options]), "tmpfs", disk],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise PermissionError(done.stderr.strip())


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a disk of so many kilobytes, or gives the one there is another size."""
    place = tmp_path / "disk"
    place.mkdir()

    def sized(kilobytes: int) -> Path:
        try:
            mount(place, kilobytes, *(["remount"] if place.is_mount() else []))
        except (PermissionError, FileNotFoundError) as error:
            pytest.skip(f"a small disk cannot be mounted here: {error}")
        return place

    yield sized
    if place.is_mount():
        subprocess.run(["umount", "--lazy", place], check=True)


def disk_tries(quick: set[int], kilobytes: list[int]) -> list[Any]:
    return [pytest.param(k, marks=[] if k in quick else pytest.mark.slow) for k in kilobytes]


def check_full(small: Small, disk: Callable[[int], Path], kilobytes: int, cache: Path) -> str:
    """Runs out of space (or not), makes room, runs again; returns the error."""
    workdir = disk(kilobytes) / "run"
    code, errors = run(small.config, workdir, cache)
    said = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert code == (2 if said else 0) and len(said) <= 1 and "Traceback" not in errors
    for line in said:
        assert "free some space" in line and str(workdir.parent) in line
    disk(20_000)
    assert run(small.config, workdir, cache)[0] == 0
    assert (workdir / "answers.jsonl").read_bytes() == small.answers
    assert read_run(workdir).finished
    assert not list(workdir.glob("*.new"))
    return "".join(said)


FULL_EVERYTHING = disk_tries(
    {44, 340}, [4, 8, 24, 44, 84, 144, 164, 224, 284, *range(300, 460, 8), 500, 540]
)
# below how many kilobytes there is no room for what, in the order in which a run writes
WRITTEN = [(20, "/cache/digests/"), (302, "/cache/data/"), (330, "/cache/"), (501, "store.sqlite")]


# what JAX cannot keep of its compiled programs, it compiles again
@pytest.mark.filterwarnings("ignore:Error writing persistent compilation cache")
@pytest.mark.parametrize("kilobytes", FULL_EVERYTHING)
def test_a_full_disk(small: Small, disk: Callable[[int], Path], kilobytes: int) -> None:
    said = check_full(small, disk, kilobytes, disk(kilobytes) / "cache")
    assert said or kilobytes > 500
    assert next((part for below, part in WRITTEN if kilobytes < below), "") in said


# ---------------------------------------------------------------------------- two at a time


def test_two_runs_on_one_store(small: Small, tmp_path: Path) -> None:
    """Both start with nothing there: they also share the building of data and index."""
    text = small.config.read_text()
    config = tmp_path / "config.py"
    config.write_text(text.replace('HERE + "/cache"', repr(str(tmp_path / "cache"))))
    process = start(config, tmp_path / "one")
    log = tmp_path / "cache" / "data.lock"
    deadline = time.monotonic() + 300
    while not log.exists() and process.poll() is None:  # both are then at work
        assert time.monotonic() < deadline
        time.sleep(0.005)
    code, errors = run(config, tmp_path / "two", tmp_path / "cache")
    assert code == 0, errors
    assert process.wait(300) == 0, (tmp_path / "one.log").read_text()
    for name in ("one", "two"):
        assert (tmp_path / name / "answers.jsonl").read_bytes() == small.answers
    with contextlib.redirect_stdout(io.StringIO()):
        assert store_command(["store", "verify", str(tmp_path / "cache" / "store.sqlite")]) == 0
