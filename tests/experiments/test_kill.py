"""A run killed at random moments and resumed ends as one that was never interrupted."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.experiments.small_run import write_small_run

ROOT = Path(__file__).parent.parent.parent


def start(config, workdir):
    command = [sys.executable, "-m", "experiments.answer", f"--config={config}",
               f"--workdir={workdir}"]  # fmt: skip
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(config, workdir):
    process = start(config, workdir)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return out


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The config, the answers of an uninterrupted run, and how many seconds one takes."""
    here = tmp_path_factory.mktemp("small")
    config = write_small_run(here)
    finish(config, here / "warm")  # compiles, builds the index
    drop_store(here)
    started = time.monotonic()
    finish(config, here / "whole")
    return config, (here / "whole" / "answers.jsonl").read_bytes(), time.monotonic() - started


def drop_store(here):
    for file in (here / "cache").glob("store.sqlite*"):
        file.unlink()


def kill_and_resume(config, workdir, moments):
    """Kills the run after each of ``moments`` seconds; returns how often it was still going."""
    killed = 0
    for moment in moments:
        process = start(config, workdir)
        try:
            process.communicate(timeout=moment)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            killed += 1
    finish(config, workdir)
    return killed


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_answers_are_the_same_bytes(uninterrupted, kills):
    config, expected, seconds = uninterrupted
    here = config.parent
    drop_store(here)
    workdir = here / f"killed-{kills}"
    moments = [random.Random(kills + i).uniform(0.3, 1.0) * seconds for i in range(kills)]
    assert kill_and_resume(config, workdir, moments) > 0
    assert (workdir / "answers.jsonl").read_bytes() == expected
    metrics = json.loads((workdir / "metrics.json").read_text())
    assert metrics["errors"] == 0 and metrics["missing"] == 0
    shutil.rmtree(workdir)


def test_some_questions_retrieve_and_some_do_not(uninterrupted):
    retrieved = {
        json.loads(line)["trace"]["gate"]["retrieve"] for line in uninterrupted[1].splitlines()
    }
    assert retrieved == {True, False}  # or the test above would say little
