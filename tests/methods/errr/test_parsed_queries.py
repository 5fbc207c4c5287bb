"""Parsing and writing of query lists."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jaxrag.methods.errr.parsed_queries import (
    ParsedQueries,
    parse_queries,
    unique_queries,
    write_queries,
)

QUESTION = "Who leads Ruritania?"
WANTED = ("prime minister of Ruritania", "Ruritania election of 2015", "who is R. Tarlenheim?")


@pytest.mark.parametrize(
    "raw",
    [
        "{0}; {1}; {2} **",
        "{0};{1};{2}**",
        "{0}; {1}; {2}",  # no end mark
        "** {0}; {1}; {2} **",
        "{0}; {1}; {2} ** and a word after the end; and one more **",
        "\"{0}\"; “{1}”; '{2}' **",
        "1. {0}; 2. {1}; 3. {2} **",
        "1. {0}\n2. {1}\n3. {2} **",
        "(1) {0}\n(2) {1}\n(3) {2}",
        "[1] {0}\n[2] {1}\n[3] {2}",
        "1) **{0}**\n2) **{1}**\n3) **{2}**\n\n**",
        "- {0}\n- {1}\n- {2}\n**",
        "* {0};\n* {1};\n* {2}\n**",
        "• {0}\n• {1}\n• {2}",
        "Queries: {0}; {1}; {2} **",
        "**Queries:** {0}; {1}; {2} **",
        "**Search engine queries**\n\n1. {0}\n2. {1}\n3. {2}",
        "Answer: {0}; {1}; {2} **",
        "Query 1: {0}\nQuery 2: {1}\nQuery 3: {2}",
        "Sure! Here are some queries:\n\n{0}; {1}; {2} **\n\nI hope that helps; ask away.",
        "One has to know who governs; so one looks it up.\n\nSearch queries: {0}; {1}; {2} **",
        "One has to know who governs.\n{0}; {1}; {2} **",
        "{0};\n{1};\n{2} **",
        "{0}\n{1}\n{2}\n**",
        "{0}; ; {1}; {0}?; {2}; .; {2} **",  # empty ones and repetitions
        "{0}； {1}； {2}",
    ],
)
def test_formats_of_models(raw):
    assert parse_queries(raw.format(*WANTED), QUESTION) == (WANTED, True, 0)


@pytest.mark.parametrize(
    "raw", ["", " \n", "**", ";;; **", "** **", "None **", "Queries:", "- \n-"]
)
def test_without_queries_the_question_is_returned(raw):
    assert parse_queries(raw, QUESTION) == ((QUESTION,), False, 0)


@pytest.mark.parametrize(
    "query",
    [
        "1998 World Cup winner",
        "7-Eleven founder",
        "3.5 litre engine of 1912",
        "actor in \"Stories USA\"",
        "\"The Office\" actor in \"Stories USA\"",
        "is 2. the answer to 1+1?",
        "SQL query language history",
        "the Beatles' first album",
        "C*-algebra definition",
    ],
)  # fmt: skip
def test_marks_inside_a_query_are_kept(query):
    assert parse_queries(f"{query}; another **", QUESTION).texts == (query, "another")


def test_an_unpaired_quote_is_removed():
    assert parse_queries('"one; two" **', QUESTION).texts == ("one", "two")


def test_queries_beyond_the_limit_are_counted():
    assert parse_queries("a; b; A; c; d **", QUESTION, limit=2) == (("a", "b"), True, 2)


def test_an_incomplete_last_query_is_dropped_unless_it_is_the_only_one():
    assert parse_queries("one; two; thr", QUESTION, truncated=True).texts == ("one", "two")
    assert parse_queries("one; two **; thr", QUESTION, truncated=True).texts == ("one", "two")
    assert parse_queries("one; two; thr", QUESTION).texts == ("one", "two", "thr")
    assert parse_queries("on", QUESTION, truncated=True) == (("on",), True, 0)
    # the last piece is incomplete even where it repeats an earlier query
    assert parse_queries("one; two; one", QUESTION, truncated=True).texts == ("one", "two")


def test_unique_queries():
    assert unique_queries(["Who is it?", "who  is it", "", "!?", "It is who"]) == (
        "Who is it?", "It is who",
    )  # fmt: skip


_MESSY = st.text(
    alphabet=st.one_of(st.sampled_from(list("ab1 .;*:\n-\"'“”()[]queriesQ；•")), st.characters()),
    max_size=120,
)


@given(_MESSY, st.integers(1, 6), st.booleans())
@example("1. 1. 1. **", 5, True)
@example("Query Query Query:: **", 5, False)
def test_any_text_gives_unique_queries(raw, most, cut):
    found = parse_queries(raw, QUESTION, limit=most, truncated=cut)
    assert isinstance(found, ParsedQueries) and 1 <= len(found.texts) <= most
    assert found.dropped >= 0 and (found.dropped == 0 or len(found.texts) == most)
    assert found.parsed or found.texts == (QUESTION,)
    for text in found.texts:
        assert re.search(r"\w", text) and text == text.strip()
        assert ";" not in text and "；" not in text and "**" not in text
    assert unique_queries(found.texts) == found.texts


_WORD = st.text(alphabet="abcdefghijklmnop", min_size=1, max_size=8)


@given(st.lists(st.lists(_WORD, min_size=2, max_size=5).map(" ".join), min_size=1, max_size=5))
@example(["n a"])  # means "no query"
def test_written_queries_are_parsed_again(texts):
    texts = unique_queries(texts)
    wanted = (texts, True, 0) if texts else ((QUESTION,), False, 0)
    assert parse_queries(write_queries(texts), QUESTION) == wanted
    # also when the generation was truncated after it
    assert parse_queries(write_queries(texts), QUESTION, truncated=True) == wanted


@given(_MESSY)
@example("0-")  # a number and no query, as "0- " is
def test_parsing_is_idempotent(raw):
    once = parse_queries(raw, QUESTION)
    again = parse_queries(write_queries(once.texts), QUESTION)
    assert again.texts == once.texts and again.parsed
