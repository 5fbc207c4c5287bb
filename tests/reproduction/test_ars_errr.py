"""Every table and figure of ERRR and ARS-RAG is made at the scale tiny, and every cell measured."""

import json
import re
from pathlib import Path

import pytest

from configs.papers import ALL
from experiments import reproduce
from jaxrag.evaluation.cells import MEAN_OF_ALL

UNDEFINED = {"precision", MEAN_OF_ALL}
"""Precision is of closed questions, which the tiny factbook has not."""


def names_of(paper: str) -> list[str]:
    return list(dict.fromkeys(n for n in (*ALL.tables, *ALL.figures) if n.startswith(paper)))


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["errr", "ars"])
def test_tables_and_figures_at_scale_tiny(
    paper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # with the cache of data and indexes
    names = names_of(paper)
    assert reproduce.main([*names, "--scale=tiny", "--workdir=made"]) == 0
    for name in names:
        record = json.loads(Path(f"made/tiny/{name.replace('/', '-')}.json").read_text())
        if name in ALL.tables:
            left_out = ALL.tables[name].left_out
            for cell in record["cells"]:
                if cell["metric"] in UNDEFINED or cell["method"] in left_out:
                    assert cell["ours"] is None
                else:
                    assert cell["ours"] is not None, (name, cell)
        if name in ALL.figures or ALL.tables[name].draw:
            drawn = Path(f"made/tiny/{name.replace('/', '-')}.svg").read_text()
            assert re.search("<(path|rect|circle) ", drawn) and record["pictures"][name]
