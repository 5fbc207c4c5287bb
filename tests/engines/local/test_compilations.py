"""Compiled programs are kept: a second process compiles nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.tiny_model import write_tiny_model
from tests.models.bert import small_bert
from tests.training.train_job import data_of

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["model", "index"])
def test_a_second_process_compiles_nothing(part: str, tmp_path: Path) -> None:
    """The second process of "index" finds the vectors, and embeds and searches for a question."""
    write_tiny_model(tmp_path / "model")
    data_of(tmp_path)
    config = small_bert.BERT | {"vocab_size": 4 + len(small_bert.WORDS)}
    small_bert.write(tmp_path / "bert", config, classifier=False)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)

    def compiled_and_read() -> tuple[int, int]:
        command = [sys.executable, "-m", "tests.engines.local.compilations", str(tmp_path), part]
        found = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        compiled, read = map(int, found.stdout.split())
        return compiled, read

    first, second = compiled_and_read(), compiled_and_read()
    assert first[0] > {"model": 10, "index": 2}[part]
    assert second[0] == 0 and (second[1] == sum(first) or part == "index")
