"""Tables and figures are made end to end at tiny scale, with the embedded models."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from configs.papers import ALL
from experiments import reproduce

PAPERS = ("pairs/", "dtr/")
NAMES = [name for name in (*ALL.tables, *ALL.figures) if name.startswith(PAPERS)]


@pytest.fixture(scope="module", autouse=True)
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tables share runs, data sets and the store."""
    before, directory = Path.cwd(), tmp_path_factory.mktemp("tiny")
    os.chdir(directory)
    yield directory
    os.chdir(before)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_is_measured(name: str, inside: Path) -> None:
    assert reproduce.main(["reproduce", name, "--scale=tiny", "--workdir=made"]) == 0
    made = inside / "made" / "tiny"
    record = json.loads((made / f"{name.replace('/', '-')}.json").read_text())
    if name in ALL.tables:
        missing = [one for one in record["cells"] if one["ours"] is None]
        assert record["cells"] and not missing
    if name in ALL.figures or ALL.tables[name].draw:
        assert record["pictures"]
        for picture in record["pictures"]:
            ElementTree.parse(made / f"{picture.replace('/', '-')}.svg")
