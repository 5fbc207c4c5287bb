"""Answers in the texts that language models write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrag.text.model_output import parse_answer


@pytest.mark.parametrize(
    "raw, how, answer",
    [
        ("<ANSWER>Rome</ANSWER> it is", "tags", "Rome"),
        ("Sure!\n<answer>Rome", "tags", "Rome"),
        ("<answer>Rome\nIt is old.", "tags", "Rome"),
        ("<answer>Rome</ans", "tags", "Rome"),  # cut at a limit of tokens
        ("<answer>Rome</answer>\n<answer>\n</answer>", "tags", "Rome"),
        ("<answer>\n</answer>", "tags", ""),
        ('<final_answer lang="en">\nRome\n</final_answer>', "tags", "Rome"),
        ("<answer>\n```\nRome\n```\n</answer>", "tags", "Rome"),
        ("Answer\n\nRome", "first_line", "Rome"),
        ("- Answers: Rome", "first_line", "Rome"),
        ("[Answer]: Answer: Rome", "first_line", "Rome"),
        ("The Answer", "first_line", "The Answer"),  # a song
    ],
)
def test_parse_answer(raw, how, answer):
    assert parse_answer(raw, how) == answer


@given(st.text(), st.sampled_from(["tags", "first_line", "text"]))
def test_any_text_can_be_parsed(raw, how):
    parsed = parse_answer(raw, how)
    assert parsed == parsed.strip() and (how == "text" or "\n" not in parsed)
