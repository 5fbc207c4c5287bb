"""Trainings in processes of their own, on devices of their own."""

import json
import os
import re
import socket
import subprocess
import sys
from typing import Any

import pytest

from jaxrag.training import step


def on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains on the first device of this process: eight threads of a test take longer."""
    make_mesh = step.make_mesh
    monkeypatch.setattr(step, "make_mesh", lambda devices, *, fsdp: make_mesh(devices[:1]))


def flags_for(devices: int) -> str:
    """XLA's flags of this process, for another number of CPU devices."""
    return re.sub(r"(?<=device_count=)\d+", str(devices), os.environ["XLA_FLAGS"])


def started(module: str, *words: Any, devices: int) -> subprocess.Popen[str]:
    """Starts ``python -m module words`` on a number of CPU devices."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, words)],
        env=os.environ | {"XLA_FLAGS": flags_for(devices), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Waits for the end; the JSON object of the last line that the process printed."""
    out, err = process.communicate(timeout=1500)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]
