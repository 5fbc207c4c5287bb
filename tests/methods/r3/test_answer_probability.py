"""Passages in the order of the gold answer's probability (R3, Table 6)."""

import math

import pytest

from jaxrag.methods.r3 import answer_probability
from jaxrag.steps.candidates import OnePath
from jaxrag.types import InputError, Question
from tests.scripted import ScriptedIndex, ScriptedModel, run

ANGLES = {"a": 0, "b": 20, "c": 40, "d": 60}
P = {"text of a": 0.1, "text of b": 0.6, "text of c": 0.7, "text of d": 0.9}
QUESTION = Question("q", "Where is it?", ("Rome", "Roma"))


def answer(question=QUESTION, **settings):
    def scores(shown, continuation):
        known = next(p for text, p in P.items() if text in shown)
        return math.log(known) - (continuation.strip() == "Roma")

    model = ScriptedModel("Rome", scores)
    config = answer_probability.Config(OnePath(n=3), **settings)
    return run(config, model, ScriptedIndex(ANGLES, {"": 0}), question=question), model


def test_the_most_probable_passages_are_read():
    found, model = answer(k=2)
    selected = found.value.trace["selected"]
    assert selected["ids"] == ["c", "b"]  # of the first three; d is not among them
    assert selected["scores"] == pytest.approx([math.log(0.7), math.log(0.6)])
    assert [one["s1"] for one in selected["candidates"]] == pytest.approx(
        [1.0, math.cos(math.radians(20)), math.cos(math.radians(40))]
    )
    (read,) = model.prompts
    assert read.index("text of c") < read.index("text of b") and "text of a" not in read
    assert len(model.scored) == 6  # two gold answers, three passages


def test_a_closed_question_counts_its_gold_option():
    table = {"text of a": (0.1, 0.8), "text of b": (0.5, 0.4), "text of c": (0.4, 0.05)}

    def scores(shown, continuation):
        true, false = next(pair for text, pair in table.items() if text in shown)
        return math.log(true if continuation.strip() == "true" else false)

    claim = Question("f", "It is in Rome.", ("true",), task="fact_checking")
    config = answer_probability.Config(OnePath(n=3))
    found = run(config, ScriptedModel("true", scores), ScriptedIndex(ANGLES, {"": 0}),
                question=claim)  # fmt: skip
    assert found.value.trace["selected"]["ids"] == ["b"]


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(InputError, match="q0 has no gold answer"):
        answer(Question("q0", "Where?", ()))
