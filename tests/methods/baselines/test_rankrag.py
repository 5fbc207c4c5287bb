"""RankRAG's selection by prompting: one score a candidate, the best are read."""

import math

import pytest

from jaxrag.methods.baselines import rankrag
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError, Question
from tests.scripted import QUESTION, ScriptedIndex, ScriptedModel, run

ANGLES = {"a": 0, "b": 20, "c": 40, "d": 60, "e": 80}
SCORES = {"a": [-3.0], "b": [-0.5, -1.0], "c": [-2.0, 0.0], "d": [-0.1], "e": [-0.05]}


def judging(said="Paris", scores=SCORES):
    """The tokens' log-probabilities of the word for relevant, by the passage in the prompt."""
    return ScriptedModel(
        said, lambda shown, word: scores[shown.rpartition("text of ")[2][0]], last_turn=True
    )


def answer(question=QUESTION, model=None, **settings):
    model = model or judging()
    settings = {"candidates": OnePath(n=4), "k": 2, **settings}
    index = ScriptedIndex(ANGLES, {"": 0})
    return run(rankrag.Config(**settings), model, index, question=question), model


def kept(found):
    return found.value.trace["selected"]["ids"]


def test_the_most_probable_are_read_best_first():
    # d -0.1, b -1.5 (both tokens), c -2, a -3; e is no candidate
    found, model = answer()
    trace = found.value.trace
    assert kept(found) == ["d", "b"]
    assert trace["selected"]["scores"] == pytest.approx([-0.1, -1.5])
    assert {c["id"]: c["score"] for c in trace["selected"]["candidates"]} == pytest.approx(
        {"a": -3.0, "b": -1.5, "c": -2.0, "d": -0.1}
    )
    assert [c["retrieval"] for c in trace["selected"]["candidates"]] == pytest.approx(
        [math.cos(math.radians(angle)) for angle in (0, 20, 40, 60)]
    )
    (asked,) = model.prompts
    assert asked.index("text of d") < asked.index("text of b") and "text of a" not in asked
    assert found.cost["llm_scores"] == 4 and found.cost["llm_calls"] == 1
    assert found.cost["searches"] == 1 and found.value.text == "Paris"


@pytest.mark.parametrize("name, word", [("baselines", "True"), ("baselines_small", " relevant")])
def test_the_first_word_of_the_prompt_is_scored(name, word):
    found, model = answer(reader=Reader(prompts=name))
    assert {said for _, said in model.scored} == {word} and kept(found) == ["d", "b"]
    assert len(model.scored) == 4
    for letter in "abcd":
        (shown,) = (one for one, _ in model.scored if one.rpartition("text of ")[2][0] == letter)
        assert f"Title {letter}" in shown and QUESTION.text in shown


def test_ties_keep_the_order_of_the_search():
    found, _ = answer(model=judging(scores=dict.fromkeys("abcd", -1.0)), k=3)
    assert kept(found) == ["a", "b", "c"]


def test_fewer_candidates_than_k_are_all_read():
    found, _ = answer(k=9)
    assert kept(found) == ["d", "b", "c", "a"]


def test_relevance_prompts_show_the_choices():
    question = Question("m", "Where is it?", ("in Rome",), ("in Oslo", "in Rome"))
    found, model = answer(question, judging("B"))
    assert found.value.text == "in Rome" and found.value.trace["task"] == "multiple_choice"
    assert all("in Oslo; in Rome" in shown for shown, _ in model.scored)


def test_invalid_settings_and_prompts_are_refused(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[relevance]\nuser = "{question} {passage}"\n')
    with pytest.raises(InputError, match=r"mine\.toml \[relevance\] has the words \[\]"):
        answer(reader=Reader(prompts=str(file)))
