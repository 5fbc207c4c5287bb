"""The model's inside through scheduler and store, and words out of tokens."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.core.store import Store
from jaxrag.engines.local.inspection import Inspection
from jaxrag.engines.scheduler import Scheduler, gather
from jaxrag.steps.inspection_tool import (
    InspectionTool,
    decode_inspection,
    distinct,
    encode_inspection,
    words_of,
    words_of_tokens,
)
from jaxrag.types import Message
from tests.methods.inspecting.looking import Transparent


def ask(tool, store, prompt="Rome is", text=" old"):
    async def both():
        return await gather(
            tool.look(prompt, text),
            tool.state(prompt, text, layer=None),
            tool.state(prompt, text, layer=3),
        )

    (outcome,) = Scheduler(store).run([("q", both)])
    if outcome.error:
        raise outcome.error
    return outcome


def test_stored_results_are_unchanged(tmp_path) -> None:
    model = Transparent(lambda prompt, seed: "")
    store = Store(tmp_path / "store.sqlite")
    first = ask(InspectionTool(model), store)
    assert first.cost["llm_scores"] == 3 and first.cost["scored_tokens"] == 12
    store.close()
    store = Store(tmp_path / "store.sqlite")
    model.inspect = None  # not asked again
    again = ask(InspectionTool(model), store)
    for one, other in zip(first.value, again.value, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
            assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
    other = Transparent(lambda prompt, seed: "")
    other.identity = '{"model":"another"}'
    ask(InspectionTool(other), store)
    assert other.looked
    store.close()


def test_results_of_different_layers_are_stored_separately(tmp_path) -> None:
    tool = InspectionTool(Transparent(lambda prompt, seed: ""))
    asked = (tool.look("a", "b"), tool.state("a", "b", layer=None), tool.state("a", "b", layer=3))
    identities = [json.loads(request.operation.identity) for request in asked]
    assert [one.get("layer", "-") for one in identities] == ["-", None, 3]
    mlp = json.loads(tool.state("a", "b", layer=3, part="mlp").operation.identity)
    assert mlp == {**identities[2], "part": "mlp"} and "part" not in identities[2]
    assert tool.state("a", "b", layer=3).operation is tool.state("c", "d", layer=3).operation


@settings(deadline=None, max_examples=30)
@given(st.text(), st.integers(0, 5), st.integers(0, 5))
def test_inspections_survive_encoding(text, t, more) -> None:
    rng = np.random.default_rng(t)
    real = [np.float32(rng.normal(size=shape)) for shape in ((t,), (t,), (t, t + more), (4,))]
    seen = Inspection(text, np.int32(rng.integers(0, 9, (t + more, 2))), *real)
    found = decode_inspection(encode_inspection(seen))
    assert found.text == text
    for a, b in zip(found[1:], seen[1:], strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype and a.shape == b.shape


def test_message_prompts_have_a_size() -> None:
    tool = InspectionTool(Transparent(lambda prompt, seed: ""))
    size = tool.look("a", "b").operation.size
    assert size(("abc", "de")) == 5
    assert size(((Message("system", "abc"), Message("user", "de")), "f")) == 6


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
