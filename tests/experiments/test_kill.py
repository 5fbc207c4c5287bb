"""A run killed at random moments and resumed ends as one that was never interrupted.

What is killed is a process of its own; what runs to its end does so in this process.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxrag.experiments.run import main
from tests.experiments.small_run import write_small_run
from tests.training.processes import flags_for

QUESTIONS = 40
ROOT = Path(__file__).parent.parent.parent


def start(config, workdir):
    command = [sys.executable, "-m", "experiments.run", f"--config={config}",
               f"--workdir={workdir}"]  # fmt: skip
    environment = {**os.environ, "XLA_FLAGS": flags_for(1), "JAX_PLATFORMS": "cpu"}
    # killed as it writes a program, it would leave half of one to the other tests
    del environment["JAX_COMPILATION_CACHE_DIR"]
    # where tests run in a shell's background Ctrl-C is ignored, and the run would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with workdir.with_suffix(".log").open("w") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)


def finish(config, workdir):
    assert main(["run", f"--config={config}", f"--workdir={workdir}"]) == 0


def entries(here):
    """How many results the store holds, as another process sees it."""
    if not (here / "cache" / "store.sqlite").exists():
        return 0
    connection = sqlite3.connect(f"file:{here / 'cache' / 'store.sqlite'}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT COUNT(*) FROM entries").fetchone()[0]
    except sqlite3.OperationalError:  # not yet a store
        return 0
    finally:
        connection.close()


def drop_store(here):
    for file in (here / "cache").glob("store.sqlite*"):
        file.unlink()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The config, the answers of an uninterrupted run, and what its store then holds."""
    here = tmp_path_factory.mktemp("small")
    config = write_small_run(here, questions=QUESTIONS)
    finish(config, here / "whole")
    return config, (here / "whole" / "answers.jsonl").read_bytes(), entries(here)


def kill_when(config, workdir, target, delay):
    """Starts the run and kills it ``delay`` seconds after the store holds ``target`` results."""
    process = start(config, workdir)
    deadline = time.monotonic() + 300
    while entries(config.parent) < target and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(delay)
    os.kill(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_and_resumed_run_writes_the_same_bytes(uninterrupted, kills):
    config, expected, total = uninterrupted
    drop_store(config.parent)
    workdir = config.parent / f"killed-{kills}"
    chance = random.Random(kills)
    targets = sorted(chance.sample(range(total - 30), kills))
    killed = [kill_when(config, workdir, target, chance.uniform(0, 0.05)) for target in targets]
    assert any(killed)
    finish(config, workdir)
    assert (workdir / "answers.jsonl").read_bytes() == expected
    metrics = json.loads((workdir / "metrics.json").read_text())
    assert metrics["errors"] == 0 and metrics["missing"] == 0


def test_the_killed_run_has_questions_with_and_without_retrieval(uninterrupted):
    answers = [json.loads(line) for line in uninterrupted[1].splitlines()]
    retrieved = {answer["trace"]["gate"]["retrieve"] for answer in answers}
    assert retrieved == {True, False}  # or the test above would say little


@pytest.mark.parametrize(
    ("number", "code"),
    [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGINT, 130)],
)
def test_an_interrupted_run_ends_in_seconds_and_resumes(uninterrupted, number, code):
    config, expected, total = uninterrupted
    drop_store(config.parent)
    workdir = config.parent / f"stopped-{code}"
    process = start(config, workdir)
    deadline = time.monotonic() + 300
    while entries(config.parent) < total // 3:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.005)
    process.send_signal(number)
    assert process.wait(5) == code
    assert "run the same command again" in workdir.with_suffix(".log").read_text()
    finish(config, workdir)
    assert (workdir / "answers.jsonl").read_bytes() == expected
    log = [json.loads(line) for line in (workdir / "log.jsonl").read_text().splitlines()]
    messages = [line["message"] for line in log]
    assert messages.count("started") == 2
    assert messages[-1] == "finished"
    assert log[0]["questions"] == QUESTIONS
