"""Every table and figure is made at scale tiny by the command, and every cell is measured.

Some five hours on one core. With $JAXRAG_SLOW_TESTS the results stay in that directory, and the
tests go on after an interruption.
"""

import re
from collections.abc import Container
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from jaxrag.configs.papers import ALL
from jaxrag.reproduction.printed.comparison import MEAN_OF_ALL
from tests.reproduction.command import make_tiny, results_directory

NAMES = [*dict.fromkeys((*ALL.tables, *ALL.figures))]
UNDEFINED = {"precision", MEAN_OF_ALL}
"""Not there with the tiny factbook: precision is of closed questions."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables share runs, data sets and the store."""
    return results_directory(tmp_path_factory.mktemp("tiny"))


def wrong(cells: list[dict[str, Any]], left_out: Container[str]) -> list[dict[str, Any]]:
    """Cells without a value that should have one, and with one though the method is left out."""
    there = [cell for cell in cells if cell["ours"] is not None]
    lacking = [cell for cell in cells if cell["ours"] is None and cell["metric"] not in UNDEFINED]
    return [cell for cell in there if cell["method"] in left_out] + [
        cell for cell in lacking if cell["method"] not in left_out
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_cell_is_measured_and_every_picture_drawn(name: str, directory: Path) -> None:
    record, made = make_tiny(name, directory)
    if table := ALL.tables.get(name):
        assert name in ALL.figures or record["cells"]
        assert not wrong(record.get("cells", []), table.left_out)
    if name in ALL.figures or ALL.tables[name].draw:
        assert record["pictures"]
    for picture, numbers in record.get("pictures", {}).items():
        file = made / f"{picture.replace('/', '-')}.svg"
        ElementTree.parse(file)
        assert numbers and re.search("<(path|rect|circle|line|polyline) ", file.read_text())
