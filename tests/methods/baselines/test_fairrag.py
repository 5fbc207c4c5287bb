"""Fair RAG's stochastic retriever: what is drawn, from what, and how probable it was."""

import math

import numpy as np
import pytest

from jaxrag.methods.baselines import fairrag
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.reader import Reader
from jaxrag.types import Question
from tests.scripted import QUESTION, ScriptedIndex, ScriptedModel, run

ANGLES = {"a": 0, "b": 20, "c": 40, "d": 60, "e": 80}
SCRIPT = {"text of": "Paris", "": "A pseudo text."}
QUERIES = {"A pseudo text.": 80, "": 0}


def answer(question=QUESTION, script=SCRIPT, **settings):
    model, index = ScriptedModel(script), ScriptedIndex(ANGLES, QUERIES)
    settings = {"candidates": OnePath(n=4), "k": 2, **settings}
    found = run(fairrag.Config(**settings), model, index, question=question)
    return found, model


def kept(found):
    return found.value.trace["selected"]["ids"]


def test_drawn_passages_are_read_in_drawn_order():
    found, model = answer(seed=5)
    trace = found.value.trace
    ids = kept(found)
    assert len(set(ids)) == 2 and set(ids) <= {"a", "b", "c", "d"}
    (asked,) = model.prompts
    assert asked.index(f"text of {ids[0]}") < asked.index(f"text of {ids[1]}")
    assert not any(f"text of {other}" in asked for other in set(ANGLES) - set(ids))
    assert [c["id"] for c in trace["selected"]["candidates"]] == ["a", "b", "c", "d"]
    assert trace["searches"][0]["ids"] == ["a", "b", "c", "d"]
    by_id = {c["id"]: c["score"] for c in trace["selected"]["candidates"]}
    assert trace["selected"]["scores"] == [by_id[name] for name in ids]
    assert found.cost["llm_calls"] == found.cost["searches"] == 1
    assert found.value.text == "Paris"


def test_the_draw_s_probability_by_hand():
    """float64: log-weights ((1 + s')^alpha) / temperature of cos 0, 20, 40, 60 degrees."""
    found, _ = answer(seed=2, alpha=3.0, temperature=1.5)
    cosines = np.cos(np.radians([0, 20, 40, 60]))
    scaled = (cosines - cosines.min()) / (cosines.max() - cosines.min())
    left, total = dict(zip("abcd", np.exp((1 + scaled) ** 3 / 1.5), strict=True)), 0.0
    for name in kept(found):
        total += math.log(left[name] / sum(left.values()))
        del left[name]
    assert found.value.trace["selected"]["logprob"] == pytest.approx(total, abs=1e-4)


def test_draws_depend_on_seed_and_question():
    assert kept(answer(seed=7)[0]) == kept(answer(seed=7)[0])
    seeds = {tuple(kept(answer(seed=seed, alpha=0.0)[0])) for seed in range(4)}
    names = [Question(f"q{i}", "Where is it?", ("Rome",)) for i in range(12)]
    questions = {tuple(kept(answer(question, alpha=0.0)[0])) for question in names}
    assert len(seeds) > 1 and len(questions) > 3  # of 12 orders


def test_a_low_temperature_is_deterministic():
    for seed in range(5):
        assert kept(answer(seed=seed, temperature=1e-6)[0]) == ["a", "b"]


def test_first_ranks_have_plackett_luce_frequencies():
    # Two candidates have s' 1 and 0, so with alpha 1 log-weights 2 and 1: e / (e + 1) = 0.731
    index = ScriptedIndex({"a": 0, "d": 60}, QUERIES)
    config = fairrag.Config(OnePath(n=2), k=1, alpha=1.0)
    asked = [Question(f"q{i}", "Where is it?", ("Rome",)) for i in range(100)]
    firsts = [kept(run(config, ScriptedModel(SCRIPT), index, question=one))[0] for one in asked]
    share = firsts.count("a") / 100
    assert abs(share - 0.731) < 4 * math.sqrt(0.731 * 0.269 / 100)


def test_fewer_candidates_than_k_are_all_read():
    found, _ = answer(candidates=OnePath(n=3), k=9)
    assert sorted(kept(found)) == ["a", "b", "c"]


def test_candidates_by_a_pseudo_context():
    found, _ = answer(
        candidates=OnePath(n=1, by="pseudo"), k=1, reader=Reader(prompts="dtr"),
        script={"text of": "Paris", "encyclopedic": "A pseudo text."},
    )  # fmt: skip
    assert kept(found) == ["e"] and found.cost["llm_calls"] == 2


def test_extreme_temperatures_give_finite_results():
    found, _ = answer(alpha=100.0, temperature=1e-4)
    assert kept(found)[0] == "a" and math.isfinite(found.value.trace["selected"]["logprob"])
