"""A folder with ``configs/dtr.py`` of small models, for examples that name this file."""

from pathlib import Path

from tests.experiments.small_run import write_small_run

CONFIG = """
import dataclasses

from jaxrag.methods.retrieve_and_read import STANDARD_RAG
from jaxrag.runs.config_file import load


def get_config(variant):
    run = dataclasses.replace(load({small!r}), limit=4)
    if variant.partition("@")[0] == "dtr":
        return run
    return dataclasses.replace(
        run, method=dataclasses.replace(STANDARD_RAG, reader=run.method.reader)
    )
"""


def write_small_configs(here: Path) -> Path:
    """Writes models, data and configs; returns the folder."""
    (here / "small").mkdir(parents=True)
    config = write_small_run(here / "small", questions=8)
    (here / "configs").mkdir()
    (here / "configs" / "dtr.py").write_text(CONFIG.format(small=str(config)))
    return here
