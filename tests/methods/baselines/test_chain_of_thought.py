"""Chain of thought: one call, the answer read from its end, junk marked."""

import pytest

from jaxrag.methods.baselines import chain_of_thought
from jaxrag.steps import prompts
from jaxrag.steps.reader import Reader
from jaxrag.types import Question
from tests.scripted import QUESTION, ScriptedModel, run

YES_NO = Question("y", "is rome a city", ("yes",), task="yes_no")
CHOICE = Question("m", "Where is it?", ("in Rome",), ("in Oslo", "in Rome", "in Bern"))
LABELS = Question(
    "l", "Rome is a city.", ("supported",), ("supported", "refuted", "not known"), task="labels"
)
SETS = ["baselines", "baselines_small"]


def answer(said, question=QUESTION, name="baselines", **settings):
    model = ScriptedModel({"": said})
    config = chain_of_thought.Config(Reader(prompts=name), **settings)
    return run(config, model, question=question), model


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "question, said, text, junk",
    [
        (QUESTION, "It is in Italy. So the answer is Rome.", "Rome", False),
        (QUESTION, "It is in Italy. It is Rome.", "It is Rome.", True),
        (QUESTION, "", "", True),
        (YES_NO, "It has a mayor, no doubt. So the answer is yes.", "yes", False),
        (YES_NO, "No doubt. It is a city.", "It is a city.", True),
        (YES_NO, "The answer is unknown.", "unknown", False),
        (LABELS, "It has a mayor. So the answer is Supported.", "supported", False),
        (LABELS, "So the answer is not refuted.", "refuted", False),
        (CHOICE, "A and C are far off. So the answer is B.", "in Rome", False),
        (CHOICE, "So the answer is in Rome.", "in Rome", False),
    ],
)
def test_the_answer_is_the_conclusion(name, question, said, text, junk):
    found, model = answer(said, question, name)
    trace = found.value.trace
    assert found.value.text == text
    assert trace["answer"]["junk"] is junk and trace["answer"]["raw"] == said
    assert found.cost["llm_calls"] == 1 and "searches" not in found.cost
    (asked,) = model.prompts
    assert asked.count(question.text) == 1
    assert ("B: in Rome" in asked) == (question is CHOICE)
    assert ("supported, refuted, not known" in asked.rpartition("Question:")[2]) == (
        question is LABELS
    )


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("role", ["", "_yes_no", "_multiple_choice"])
def test_demonstrations_end_in_a_parsable_answer(name, role):
    """What is asked for is what the demonstrations show, and what is read from them."""
    demonstrations = prompts.load(name).role(f"chain_of_thought{role}").demonstrations
    assert demonstrations
    for _, reply in demonstrations:
        assert ". So the answer is " in reply and "\n" not in reply
        said = reply.rpartition("So the answer is ")[2].rstrip(".")
        question = {"": QUESTION, "_yes_no": YES_NO, "_multiple_choice": CHOICE}[role]
        found, _ = answer(reply, question, name)
        options = {"A": "in Oslo", "B": "in Rome", "C": "in Bern"}
        assert found.value.text == (options[said] if role == "_multiple_choice" else said)
        assert found.value.trace["answer"]["junk"] is False


@pytest.mark.parametrize("question", [QUESTION, YES_NO])
def test_reasoning_has_its_own_token_limit(question):
    model = ScriptedModel("So the answer is yes.")
    config = chain_of_thought.Config(Reader(prompts="baselines", answer_tokens=3), 77)
    run(config, model, question=question)
    assert model.settings[0]["max_new_tokens"] == 77


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("role", ["chain_of_thought_labels", "direct_labels", "labels"])
def test_demonstrations_of_labels_end_in_a_listed_label(name, role):
    for asked, reply in prompts.load(name).role(role).demonstrations:
        said = reply.rpartition("So the answer is ")[2].rstrip(".") or reply
        listed = asked.strip().rpartition(": ")[2] if name == "baselines" else asked
        assert f"{said}," in listed or f", {said}" in listed
