"""Every parser is linear: 200,000 characters of any repeated token take less than 0.2 seconds.

The default suite allows two seconds, since it also runs on busy and slow machines. A quadratic
parser takes minutes: one that needs 0.1 s for 2,000 characters needs 1,000 s for 200,000.
"""

import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parsers import PARSERS

LENGTH, SECONDS, BUSY_SECONDS, TRIES = 200_000, 0.2, 2.0, 4

WORDS = """
- • * ** a A 1 1. . : ; _ ' " “ ” ’ [ ] ( ) < <a > & &#1 &#49; &amp; / \\ query query: queries:
**query **query:** **a none; a; answer answer: <answer> </answer> <answer action search[ search[a]
thought Q: rewrite 1- 1.) N+1/ not_enough_ ” ”] é \x00 \ud800 \x1b[ 0 ? q1 Mr. '*
"""
TOKENS = [
    *WORDS.split(), "\n", " ", "\t", "\xa0", "\u3000", "\u2028", "\r\n", "1. ", ". ", "? ",
    "! 2. ", "a ", "A ", "1 ", "query ", "- ", "- - ", "\n- ", "\n1. ", "\n1 ", "(1) ", "** ",
    "answer is ", "answer: ", "action ", "\naction", "action 1: ", "thought 1: ", "thought: \n",
    "St. ", "J. ", "N 2 ", "2 N ", "2 N to the ", "vitamin ", "none of the ", "a b;", ".\" ",
    " 1.", "the ",
]  # fmt: skip

# those on which a parser once took seconds or minutes
SLOW_ONCE = [
    ("", "\n", ""), ("", " ", ""), ("x", "!", "x"), ("", ".", ""), ("", "- ", ""), ("", "St. ", ""),
    ("action", " ", "x"), ("", "A ", ""), ("", "a;", ""), ("&#", "1", ";"),
]  # fmt: skip


def repeated(before: str, token: str, after: str) -> str:
    return before + token * ((LENGTH - len(before + after)) // len(token)) + after


def seconds(parse: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    parse(text)
    return time.process_time() - start


def check_linear(name: str, text: str, limit: float = SECONDS) -> None:
    """The least of a few measurements, since a busy machine makes each of them longer."""
    tries = (seconds(PARSERS[name], text) for _ in range(TRIES))
    assert any(one < limit for one in tries), (name, text[:20])


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_is_linear_where_one_was_not(name: str) -> None:
    for case in SLOW_ONCE:
        check_linear(name, repeated(*case), BUSY_SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_is_linear_in_every_token(name: str) -> None:
    for token in TOKENS:
        for before, after in (("", ""), ("x", "x"), ("a ", "\na")):
            check_linear(name, repeated(before, token, after))


PIECES = st.one_of(st.sampled_from(TOKENS), st.text(min_size=1, max_size=3))


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(PIECES, min_size=1, max_size=3).map("".join), PIECES, PIECES)
def test_a_parser_is_linear_in_any_repetition(
    name: str, token: str, before: str, after: str
) -> None:
    check_linear(name, repeated(before, token, after))
