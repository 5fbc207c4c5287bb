"""IRCoT on scripts: what is searched for, when it ends, what the answer is read from."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxrag.methods.iterative import ircot
from jaxrag.methods.iterative.ircot import Interleaving
from jaxrag.steps.reader import Reader
from jaxrag.types import Passage
from tests.methods.iterative.turns import CITY, HILL, LAND, WHEN, Turns, WordIndex, run

READER = Reader(prompts="iterative_small")
FIRST = " Strelsau is the capital of Ruritania. It is a kingdom and more"
LAST = "So the answer is: 1830. And then some"


def answer(model, index=None, question=WHEN, *, answer_from="reasoning", **loop):
    config = ircot.Config(Interleaving(**{"k": 1, **loop}), answer_from, READER)
    return run(config, model, index or WordIndex(), question)


def test_sentences_are_searched_for_until_one_states_the_answer():
    model, index = Turns(FIRST, "Ruritania became free in 1830.", LAST), WordIndex()
    found = answer(model, index)
    trace = found.value.trace
    # the question holds "the capital Strelsau" (city), the second sentence Ruritania's words (land)
    assert [text for text, _ in index.asked] == [
        WHEN.text,
        "Strelsau is the capital of Ruritania.",
        "Ruritania became free in 1830.",
    ]
    assert [s["path"] for s in trace["searches"]] == ["question", "sentence 1", "sentence 2"]
    assert [s["ids"] for s in trace["searches"]] == [["city"], ["city"], ["land"]]
    assert trace["selected"]["ids"] == ["city", "land"]
    assert found.value.text == "1830" and trace["answer"]["junk"] is False
    assert trace["loop"] == {"steps": 3, "end": "stated"}
    assert trace["reasoning"][0]["text"] == "Strelsau is the capital of Ruritania."
    assert found.cost["llm_calls"] == 3 and found.cost["searches"] == 3
    last = model.prompts[-1]
    told = "Reasoning: Strelsau is the capital of Ruritania. Ruritania became free in 1830."
    assert last.endswith(told) and CITY.text in last and LAND.text in last
    assert LAND.text not in model.prompts[1] and HILL.text not in last
    assert model.settings[0]["max_new_tokens"] == 64 and "\n" in model.settings[0]["stop"]


def test_a_separate_reader_answers_from_all_passages():
    model = Turns(FIRST, "Ruritania became free in 1830.", LAST, " in 1830\n")
    found = answer(model, answer_from="passages")
    assert found.value.text == "in 1830" and found.cost["llm_calls"] == 4
    shown = model.prompts[-1].rpartition("\n\n")[2]  # behind the demonstrations
    assert shown.index(CITY.text) < shown.index(LAND.text) < shown.index(WHEN.text)
    assert "Strelsau is the capital of Ruritania. Ruritania" not in shown
    assert model.settings[-1]["max_new_tokens"] == READER.answer_tokens
    assert found.value.trace["answer"]["text"] == "in 1830"


@pytest.mark.parametrize(
    "texts, end, steps",
    [
        (["", "never"], "empty", 1),
        (["...", "never"], "empty", 1),
        (["One fact. Two", "one FACT!", "never"], "repeated", 2),
        (["One.", "Two.", "Three.", "Four."], "limit", 3),
        ([LAST, "never"], "stated", 1),
    ],
)
@pytest.mark.parametrize("answer_from", ["reasoning", "passages"])
def test_every_reason_to_end_the_loop(texts, end, steps, answer_from):
    found = answer(Turns(*texts), max_steps=3, answer_from=answer_from)
    assert found.value.trace["loop"] == {"steps": steps, "end": end}
    assert found.cost["llm_calls"] == steps + (answer_from == "passages")


def test_collected_passages_are_limited():
    rows = [Passage(f"p{i}", "", f"fact {i}") for i in range(9)]
    model = Turns("fact 4.", "fact 5.", "fact 6.")
    found = answer(model, WordIndex(*rows), WHEN, k=2, max_passages=3, max_steps=3)
    # nothing of the question is found; then 4 and 0 (both hold "fact", 4 more), then 5
    assert [s["ids"] for s in found.value.trace["searches"]] == [
        [], ["p4", "p0"], ["p5", "p0"], ["p6", "p0"],
    ]  # fmt: skip
    assert found.value.trace["selected"]["ids"] == ["p4", "p0", "p5"]
    assert [s["passages"] for s in found.value.trace["reasoning"]] == [0, 2, 3]


PIECES = ("fact. ", "So the answer is: ", "answer is", "\n", "Strelsau", "?", " ", "é", "}", "{x}")


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.lists(st.sampled_from(PIECES) | st.text(max_size=5)).map("".join), min_size=1))
def test_it_terminates_on_any_output(texts):
    model = Turns(*texts)
    found = answer(model, max_steps=4, answer_from="passages")
    assert len(model.prompts) <= 5 and isinstance(found.value.text, str)
    assert found.value.trace["loop"]["end"] in ("stated", "empty", "repeated", "limit")
