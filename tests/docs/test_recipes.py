"""The recipes' commands fit the memory that they state; tests/docs/test_commands.py parses them."""

import re
import shlex
from pathlib import Path
from typing import Any, cast

import pytest

from jaxrag.configs.papers import ALL
from jaxrag.configs.papers.models import PUBLISHED
from jaxrag.data.origins import unbuilt
from jaxrag.experiments import reproduce
from jaxrag.models.device_memory import Devices
from jaxrag.reproduction.check import memory_by_models
from jaxrag.reproduction.choices import add, parts_to_make, work_of
from jaxrag.runs.run import Run
from tests.docs.test_commands import ROOT, commands

TEXT = (ROOT / "docs" / "recipes.md").read_text("utf-8")
FLAGS = re.compile(r"`(--check --devices=\d+ --device_memory=[\d.]+)`")


def checked(text: str) -> list[str]:
    """The commands that make a table, each with the flags that stand before it."""
    _, _, *parts = FLAGS.split(text)  # the first flags are an example
    some = zip(parts[1::2], parts[2::2], strict=True)
    return [
        f"{one} {flags}"
        for flags, after in some
        for one in commands(after)
        if one.startswith("jaxrag reproduce dtr/table2")
    ]


CHECKED = checked(TEXT)


def failing(text: str, devices: Devices) -> set[str]:
    """The models of a command that exceed the memory of some devices."""
    names, values = reproduce.read_command(shlex.split(text)[1:])
    work = work_of(ALL, names, values)
    for name in names:
        add(ALL, work, name, values.scale, parts_to_make(ALL, name, values))
    memories = memory_by_models(work.jobs, PUBLISHED, devices)
    assert memories and all(fit.memory for fits in memories.values() for fit in fits.values())
    return {name for name, fits in memories.items() if not all(f.fits for f in fits.values())}


@pytest.mark.parametrize("text", CHECKED)
def test_a_recipe_fits_its_devices_and_not_much_smaller_ones(text: str) -> None:
    _, values = reproduce.read_command(shlex.split(text)[1:])
    devices: Any = reproduce._devices(values)
    assert failing(text, devices) == set()
    assert failing(text, devices._replace(memory=devices.memory / 8))


def test_each_recipe_has_its_flags() -> None:
    made = [text for text in commands(TEXT) if text.startswith("jaxrag reproduce dtr/table2")]
    assert len(CHECKED) == len(made) == 8


def test_the_data_of_the_table_are_built_first() -> None:
    names, values = reproduce.read_command(shlex.split(CHECKED[0])[1:])
    work = work_of(ALL, names, values)
    add(ALL, work, names[0], values.scale, parts_to_make(ALL, names[0], values))
    missing = {m for job in work.jobs.values() for m in unbuilt(cast(Run, job).data, Path("no"))}
    built = [text for text in commands(TEXT) if text.startswith("jaxrag data")]
    wanted = {one.name.split()[1] for one in missing}
    assert wanted <= {word for text in built for word in text.split()} and len(wanted) == 7
