"""The table of sets in docs/data.md agrees with the code."""

import re
from pathlib import Path

from jaxrag.data.dataset import OWN
from jaxrag.data.sets import SETS

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_the_table_of_sets():
    rows = {}
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0] in SETS:
            rows[cells[0]] = cells[1:3]
    assert set(rows) == set(SETS)
    for name, (splits, corpus) in rows.items():
        published = SETS[name]
        sizes = re.findall(r"(\w+) ([\d,]+)", splits)
        assert {one: int(n.replace(",", "")) for one, n in sizes} == dict(published.splits)
        assert re.findall(r"\*\*(\w+)", splits) == [published.evaluated]
        assert corpus == ("own contexts" if published.corpus == OWN else published.corpus)
