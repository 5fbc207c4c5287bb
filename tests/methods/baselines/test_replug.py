"""REPLUG's ensemble: what the mixture chooses, and how sure it is of it."""

import math

import numpy as np
import pytest

from jaxrag.methods.baselines import replug
from jaxrag.steps.candidates import OnePath
from jaxrag.types import Question
from tests.scripted import ScriptedIndex, ScriptedModel, run

OPEN = Question("q", "Where is it?", ("Rome",))
CLAIM = Question("f", "It is in Rome.", ("true",), task="fact_checking")
ANGLES = {"a": 0, "b": 60, "c": 90}  # scores 1, 0.5 and 0 for a query of 0 degrees
SAID = {"text of a": "Paris", "text of b": "Rome", "text of c": "Rome"}
P = {
    "text of a": {"Paris": 0.5, "Rome": 0.2},
    "text of b": {"Paris": 0.1, "Rome": 0.6},
    "text of c": {"Paris": 0.1, "Rome": 0.9},
}


def answer(question=OPEN, table=P, **settings):
    def scores(shown, continuation):
        known = next(some for text, some in table.items() if text in shown)
        return math.log(known[continuation.strip()])

    settings = {"candidates": OnePath(n=3), **settings}
    model = ScriptedModel(SAID, scores)
    return run(replug.Config(**settings), model, ScriptedIndex(ANGLES, {"": 0}), question=question)


def test_the_mixture_by_hand():
    # lambda of scores 1, 0.5, 0: e / s, e^0.5 / s, 1 / s with s = e + e^0.5 + 1 = 5.36700
    # = 0.50648, 0.30720, 0.18632; Paris 0.25324 + 0.03072 + 0.01863 = 0.30259,
    # Rome 0.10130 + 0.18432 + 0.16769 = 0.45330
    found = answer()
    assert found.value.text == "Rome"
    mixed = found.value.trace["ensemble"]
    assert mixed == {
        "Paris": pytest.approx(math.log(0.30259), abs=1e-4),
        "Rome": pytest.approx(math.log(0.45330), abs=1e-4),
    }
    assert found.value.trace["selected"]["ids"] == ["a", "b", "c"]
    assert found.cost["llm_calls"] == 3  # every passage is read alone


def test_at_a_low_temperature_the_best_passage_decides():
    assert answer(temperature=0.01).value.text == "Paris"


def test_a_closed_question_is_answered_by_its_most_probable_option():
    table = {
        "text of a": {"true": 0.4, "false": 0.5},
        "text of b": {"true": 0.7, "false": 0.1},
        "text of c": {"true": 0.7, "false": 0.1},
    }
    # true 0.50648 * 0.4 + 0.49352 * 0.7 = 0.548, false 0.253 + 0.049 = 0.303
    found = answer(CLAIM, table)
    assert found.value.text == "true" and found.value.trace["option"]["said"] == 0
    np.testing.assert_allclose(found.value.trace["ensemble"]["true"], math.log(0.54806), atol=1e-4)
