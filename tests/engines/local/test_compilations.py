"""Compiled programs are kept: a second process compiles nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.tiny_model import write_tiny_model

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "model")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)

    def compiled_and_read() -> tuple[int, int]:
        command = [sys.executable, "-m", "tests.engines.local.compilations", str(tmp_path)]
        found = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        compiled, read = map(int, found.stdout.split())
        return compiled, read

    first, second = compiled_and_read(), compiled_and_read()
    assert first[0] > 10
    assert second == (0, first[0] + first[1])
