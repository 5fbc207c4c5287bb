"""Reproductions by the command, in a process of its own with one device, as users run them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


def results_directory(default: Path) -> Path:
    """Where the command runs: $JAXRAG_SLOW_TESTS if it is set, so that hours of work go on."""
    directory = Path(os.environ.get("JAXRAG_SLOW_TESTS") or default)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def make_tiny(name: str, directory: Path) -> tuple[dict[str, Any], Path]:
    """Makes a table or figure at scale tiny; its record, and the directory of its files."""
    command = [sys.executable, "-W", "ignore", "-m", "experiments.reproduce", name]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [*command, "--scale=tiny", "--workdir=made"],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    made = directory / "made" / "tiny"
    return json.loads((made / f"{name.replace('/', '-')}.json").read_text()), made
