"""SeaKR on scripts: when it searches, which passage and which answer it takes, and that it ends."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.methods.inspecting.seakr import Config
from jaxrag.steps.reader import Reader
from jaxrag.types import Question
from tests.methods.inspecting.looking import Transparent, run

READER = Reader(prompts="inspecting_small")
STATED = " So the answer is Rome"


def config(**changes):
    given = {"threshold": -4.0, "samples": 3, "k": 3, "max_steps": 4, "max_passages": 2}
    return Config(reader=READER, **{**given, **changes})


def shown(prompt):
    """The last block of a prompt, without its demonstrations."""
    return prompt.rpartition("\n\n")[2]


def writer(*rules, otherwise=STATED):
    """Says the text of the first rule whose part occurs in what is asked."""

    def write(prompt, seed):
        return next((text for part, text in rules if part in shown(prompt)), otherwise)

    return write


def spread(*rules, otherwise=0.0):
    """States of a text at +x or -x along one direction, x by the first rule that fits.

    Of three samples, the greedy text's among them or not, the Gram matrix then has the one
    eigenvalue 3 * 2 * x^2 (each centred state is (x, -x)).
    """

    def state(prompt, text):
        x = next((x for part, x in rules if part in shown(prompt)), otherwise)
        return [2 * x, 0.0]

    return state


def expected(x, samples=3, alpha=1e-3):
    """By hand: centred states (x, -x), so Gram entries 2x^2, eigenvalues 2x^2 * k, 0, ..., 0."""
    return (math.log(2 * x * x * samples + alpha) + (samples - 1) * math.log(alpha)) / samples


def test_certain_steps_need_no_passages() -> None:
    said = writer(
        ("So the answer is", " Rome."), ("lies in Italy.", STATED), otherwise=" It lies in Italy"
    )
    model = Transparent(said, spread=spread())
    found = run(config(), model)
    trace = found.value.trace
    assert found.value.text == "Rome" and "searches" not in trace and "selected" not in trace
    assert [one["text"] for one in trace["steps"]] == [
        "It lies in Italy.",
        "So the answer is Rome.",
    ]
    assert model.parts == {"mlp"}  # to which the released threshold belongs
    low = math.log(1e-3)  # all states are 0: the mean of three logarithms of alpha
    assert [one["uncertainty"] for one in trace["steps"]] == pytest.approx([low, low], rel=1e-5)
    assert trace["gate"] == {
        "name": "seakr", "retrieve": False, "highest": pytest.approx(low, rel=1e-5),
        "threshold": -4.0, "retrieved": 0, "of": 2,
    }  # fmt: skip
    # the steps but the last, which states the answer, stand for passages
    steps = [p for p in model.prompts if shown(p).startswith("It lies in Italy.\nQuestion: Where")]
    assert steps and trace["readings"]["chosen"] in ("steps", "passages")


def test_samples_are_drawn_at_temperature_one_by_seeds() -> None:
    model = Transparent(writer(), spread=spread())
    found = run(config(samples=4), model)
    drawn = [one for one in model.settings if one["temperature"]]
    assert {one["temperature"] for one in drawn} == {1.0}
    assert {one["seed"] for one in drawn} == {1, 2, 3, 4}
    # a step and two readings, which are one prompt here: each greedy and 4 samples
    assert found.cost["llm_calls"] == 15 and found.cost["llm_scores"] == 12


def test_an_uncertain_step_takes_the_least_uncertain_passage() -> None:
    where = ("Where is it?", " It lies in Oslo")
    model = Transparent(
        writer(("text of d", STATED), ("text of", " It lies far"), where),
        spread=spread(
            ("text of c", 30.0), ("text of d", 10.0), ("text of b", 20.0), otherwise=100.0
        ),
    )
    found = run(config(), model)
    trace = found.value.trace
    (step,) = trace["steps"]
    assert step["retrieve"] and step["uncertainty"] == pytest.approx(expected(100.0), rel=1e-4)
    # all words are sure, stopwords left out; "lies Oslo" finds e, d, c
    assert step["query"] == "lies Oslo" == trace["searches"][0]["query"]
    assert trace["searches"][0]["ids"] == ["e", "d", "c"] == [one["id"] for one in step["tried"]]
    tried = {one["id"]: one["uncertainty"] for one in step["tried"]}
    assert tried == {
        "e": pytest.approx(expected(100.0), rel=1e-4),
        "d": pytest.approx(expected(10.0), rel=1e-4),
        "c": pytest.approx(expected(30.0), rel=1e-4),
    }
    assert step["kept"] == "d" and trace["selected"]["ids"] == ["d"]
    assert found.value.text == "Rome" and found.cost["searches"] == 1


def test_uncertain_words_are_left_out_unless_in_the_question() -> None:
    def surely(text):
        bad = [text.find(word) for word in ("Oslo", "Norway")]
        return [0.5 if i in bad else 0.99 for i in range(len(text))]

    model = Transparent(
        writer(("text of", STATED), otherwise=" Oslo lies within Norway"),
        spread=spread(otherwise=9.0), surely=surely,
    )  # fmt: skip
    question = Question("q", "Where is Oslo?", ("x",))
    found = run(config(max_steps=1), model, question=question)
    assert found.value.trace["steps"][0]["query"] == "Oslo lies within"
    kept = run(config(max_steps=1, sure=0.4), model, question=question)
    assert kept.value.trace["steps"][0]["query"] == "Oslo lies within Norway"


def test_an_empty_step_searches_by_the_question() -> None:
    model = Transparent(writer(("text of", STATED), otherwise=""))
    found = run(config(), model, question=Question("q", "Where is it in Oslo?", ("x",)))
    step = found.value.trace["steps"][0]
    assert step["query"] == "Oslo" and step["retrieve"] and step["uncertainty"] is None
    assert found.value.text == "Rome"


def test_a_step_without_new_passages_ends_the_loop() -> None:
    # the same step again asks the same query again
    model = Transparent(writer(otherwise=" It lies in Oslo"), spread=spread(otherwise=9.0))
    found = run(config(max_passages=5), model)
    trace = found.value.trace
    assert found.cost["searches"] == 1 and len(trace["steps"]) == 2
    assert "tried" not in trace["steps"][1] and len(trace["selected"]["ids"]) == 1
    # no reading states an answer: it is asked for by its beginning
    assert trace["answer"]["raw"] == "It lies in Oslo So the answer is It lies in Oslo"


def test_the_less_uncertain_answer_is_chosen() -> None:
    def model(steps, passages):
        return Transparent(
            writer(("text of", " So the answer is Oslo."), ("It lies in Italy.\nQ", STATED),
                   ("Italy.", STATED), otherwise=" It lies in Italy"),
            spread=spread(("text of", passages), ("It lies in Italy.\nQ", steps), ("Italy.", 1.0)),
        )  # fmt: skip

    # the second step is uncertain: it gets a passage, from which the answer is another one
    for steps, passages, text in [(2.0, 50.0, "Rome"), (50.0, 2.0, "Oslo")]:
        found = run(config(threshold=-4.6), model(steps, passages))
        readings = found.value.trace["readings"]
        assert found.value.text == text
        assert readings["steps"]["uncertainty"] == pytest.approx(expected(steps), rel=1e-4)
        assert readings["passages"]["uncertainty"] == pytest.approx(expected(passages), rel=1e-4)


def test_an_unknown_answer_is_not_chosen() -> None:
    model = Transparent(
        writer(("text of", " So the answer is unknown."), otherwise=" It lies in Italy"),
        spread=spread(("text of", 1.0), otherwise=50.0),
    )
    found = run(config(), model)
    assert found.value.trace["readings"]["chosen"] == "steps"


@settings(deadline=None, max_examples=15)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=4), st.integers(0, 99))
def test_it_terminates_on_any_output(texts, number) -> None:
    model = Transparent(
        lambda prompt, seed: texts[(len(prompt) + seed + number) % len(texts)],
        lambda text, n: (np.zeros(len(text)), np.full((len(text), n), 1 / n)),
        lambda prompt, text: [float(len(text)), float(number)],
    )
    found = run(config(threshold=-1.0), model)
    # a step has 4 calls, and 12 more where 3 passages are tried; at last two readings, each twice
    assert found.cost["llm_calls"] <= 4 * 16 + 10 and found.cost.get("searches", 0) <= 2
