import re
import tomllib
from pathlib import Path

import pytest

from jaxrag.text.model_output import parse_answer

TABLE = tomllib.loads(Path(__file__).with_name("raw_outputs.toml").read_text(encoding="utf-8"))
ROWS = TABLE["row"]


@pytest.mark.parametrize("how", ["tags", "first_line", "text"])
@pytest.mark.parametrize("row", ROWS, ids=[f"{i}-{row['family']}" for i, row in enumerate(ROWS)])
def test_the_answer_in_a_raw_output(row, how):
    opened = {"opened": True} if "opened" in row else {}
    assert parse_answer(row["raw"], how, **opened) == row.get(how, row.get("answer"))


def test_the_table_has_many_families_sources_and_forms():
    assert len(ROWS) >= 100 and len({row["raw"] for row in ROWS}) == len(ROWS)
    assert len({row["family"] for row in ROWS} - {"any"}) >= 8
    runs = [row["source"] for row in ROWS if row["source"].startswith("own run: ")]
    assert len(runs) >= 30
    form = re.compile(r"own run: ([^,]+), \w+/\w+, \d{4}-\d\d-\d\d")
    assert all((run := form.fullmatch(one)) and run[1] in TABLE["models"] for one in runs)
    public = [one["source"] for one in ROWS if re.fullmatch(r"[\w.-]+/[\w.-]+ \S+", one["source"])]
    assert len(public) >= 30
    assert len(runs) + len(public) + sum(row["source"] == "our words" for row in ROWS) == len(ROWS)
    assert {row["finish"] for row in ROWS} == {"end", "stop", "length"}
    assert {row.get("opened", False) for row in ROWS} == {True, False}
