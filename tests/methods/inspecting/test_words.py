"""Words out of texts and tokens."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.engines.local.inspection import Inspection
from jaxrag.methods.inspecting.words import distinct, words_of, words_of_tokens


def test_words_have_spans_and_sentence_numbers() -> None:
    text = "x: It is St. Paul's.  Is it? Yes"
    found = words_of(text, 2)
    assert [text[word.start : word.end] for word in found] == [word.text for word in found]
    assert [(w.text, w.sentence) for w in found] == [
        ("It", 0), ("is", 0), ("St.", 0), ("Paul's.", 0), ("Is", 1), ("it?", 1), ("Yes", 2),
    ]  # fmt: skip
    assert [w.bare for w in found] == ["It", "is", "St", "Paul's", "Is", "it", "Yes"]
    assert [w.content for w in found] == [False, False, True, True, False, False, False]


@pytest.mark.parametrize("word", ["The", "don't", "It's", "—", "...", "which,", "(of)"])
def test_stopwords_are_no_content_words(word) -> None:
    assert not words_of(word)[0].content


@pytest.mark.parametrize("word", ["Rome", "1,204", "U.S.", "O'Neill", "été"])
def test_content_words_by_hand(word) -> None:
    assert words_of(word)[0].content


@settings(deadline=None, max_examples=30)
@given(st.text())
def test_words_are_split_at_white_space(text) -> None:
    assert [word.text for word in words_of(text)] == text.split()


def test_tokens_belong_to_the_word_they_begin_in() -> None:
    text = "Old Rome, here."
    spans = [(0, 0), (0, 2), (2, 3), (3, 6), (6, 8), (8, 9), (9, 10), (10, 14), (14, 15)]
    empty = np.zeros(0, np.float32)
    seen = Inspection(text, np.array(spans, np.int32), empty, empty, np.zeros((0, 9)), empty)
    # none; Ol d " Ro" me , blank here .
    found = words_of_tokens(seen, words_of(text))
    assert found.tolist() == [-1, 0, 0, 1, 1, 1, -1, 2, 2]
    assert words_of_tokens(seen, words_of(text, 4, 9)).tolist() == [-1, -1, -1, 0, 0, 0, -1, -1, -1]
    assert words_of_tokens(seen, []).tolist() == [-1] * 9


def test_equal_words_have_one_index() -> None:
    assert distinct(words_of("Rome is old. rome, Old Rome?")).tolist() == [0, 1, 2, 0, 2, 0]
