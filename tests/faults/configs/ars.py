"""A run of ARS-RAG; DIRECTORY is replaced by the directory of its files."""

from pathlib import Path

from jaxrag.runs.config_file import load
from jaxrag.runs.run import Run
from tests.experiments.test_ars_run import Made, full

HERE = Path("DIRECTORY")


def get_config() -> Run:
    small = load(str(HERE / "small.py"))
    return full(Made(HERE, small, HERE / "ranker", HERE / "bandit"))
