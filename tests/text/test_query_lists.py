"""Reading queries out of what models write, and writing them."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jaxrag.functional.query_lists import Queries, different, parse_queries, write_queries

ASKED = "Who leads Ruritania?"
WANTED = ("prime minister of Ruritania", "Ruritania election of 2015", "who is R. Tarlenheim?")


@pytest.mark.parametrize(
    "raw",
    [
        "{0}; {1}; {2} **",
        "{0};{1};{2}**",
        "{0}; {1}; {2}",  # no mark at the end
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
def test_ways_of_writing(raw):
    assert parse_queries(raw.format(*WANTED), ASKED) == (WANTED, True, 0)


@pytest.mark.parametrize(
    "raw", ["", " \n", "**", ";;; **", "** **", "None **", "Queries:", "- \n-"]
)
def test_nothing_to_read_gives_the_question(raw):
    assert parse_queries(raw, ASKED) == ((ASKED,), False, 0)


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
def test_what_belongs_to_a_query_stays(query):
    assert parse_queries(f"{query}; another **", ASKED).texts == (query, "another")


def test_a_quote_that_lost_its_other_goes():
    assert parse_queries('"one; two" **', ASKED).texts == ("one", "two")


def test_the_bound_counts_what_it_drops():
    assert parse_queries("a; b; A; c; d **", ASKED, most=2) == (("a", "b"), True, 2)


def test_a_torn_last_query_goes_unless_it_is_alone():
    assert parse_queries("one; two; thr", ASKED, cut=True).texts == ("one", "two")
    assert parse_queries("one; two **; thr", ASKED, cut=True).texts == ("one", "two")
    assert parse_queries("one; two; thr", ASKED).texts == ("one", "two", "thr")
    assert parse_queries("on", ASKED, cut=True) == (("on",), True, 0)
    # what is torn is the last piece, even where it only repeats one before it
    assert parse_queries("one; two; one", ASKED, cut=True).texts == ("one", "two")


def test_different_by_words():
    assert different(["Who is it?", "who  is it", "", "!?", "It is who"]) == (
        "Who is it?", "It is who",
    )  # fmt: skip


_MESSY = st.text(
    alphabet=st.one_of(st.sampled_from(list("ab1 .;*:\n-\"'“”()[]queriesQ；•")), st.characters()),
    max_size=120,
)


@given(_MESSY, st.integers(1, 6), st.booleans())
@example("1. 1. 1. **", 5, True)
@example("Query Query Query:: **", 5, False)
def test_anything_gives_different_queries(raw, most, cut):
    found = parse_queries(raw, ASKED, most=most, cut=cut)
    assert isinstance(found, Queries) and 1 <= len(found.texts) <= most
    assert found.dropped >= 0 and (found.dropped == 0 or len(found.texts) == most)
    assert found.parsed or found.texts == (ASKED,)
    for text in found.texts:
        assert re.search(r"\w", text) and text == text.strip()
        assert ";" not in text and "；" not in text and "**" not in text
    assert different(found.texts) == found.texts


_WORD = st.text(alphabet="abcdefghijklmnop", min_size=1, max_size=8)


@given(st.lists(st.lists(_WORD, min_size=2, max_size=5).map(" ".join), min_size=1, max_size=5))
@example(["n a"])  # says that there is none, so that the question stands for it
def test_what_is_written_is_read_again(texts):
    texts = different(texts)
    wanted = (texts, True, 0) if texts else ((ASKED,), False, 0)
    assert parse_queries(write_queries(texts), ASKED) == wanted
    # and so is what was read, whatever it was read from
    assert parse_queries(write_queries(texts), ASKED, cut=True) == wanted


@given(_MESSY)
def test_reading_again_changes_nothing(raw):
    once = parse_queries(raw, ASKED)
    again = parse_queries(write_queries(once.texts), ASKED)
    assert again.texts == once.texts and again.parsed
