import tomllib
from pathlib import Path

import pytest

from jaxrag.text.model_output import parse_answer

ROWS = tomllib.loads(Path(__file__).with_name("raw_outputs.toml").read_text("utf-8"))["row"]


@pytest.mark.parametrize("how", ["tags", "first_line", "text"])
@pytest.mark.parametrize("row", ROWS, ids=[f"{i}-{row['family']}" for i, row in enumerate(ROWS)])
def test_the_answer_in_a_raw_output(row, how):
    opened = {"opened": True} if "opened" in row else {}
    assert parse_answer(row["raw"], how, **opened) == row.get(how, row.get("answer"))
