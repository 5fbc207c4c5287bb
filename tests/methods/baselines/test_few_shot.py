"""The row LLM: one call with demonstrations, for every kind of question."""

import pytest

from jaxrag.methods.baselines import few_shot
from jaxrag.steps import prompts
from jaxrag.steps.reader import Reader
from jaxrag.types import Question
from tests.scripted import QUESTION, ScriptedModel, run

YES_NO = Question("y", "is rome a city", ("yes",), task="yes_no")
CHOICE = Question("m", "Where is it?", ("in Rome",), ("in Oslo", "in Rome", "in Bern"))


@pytest.mark.parametrize("name", ["baselines", "baselines_small"])
@pytest.mark.parametrize(
    "question, said, text, task",
    [
        (QUESTION, "Rome\nand more", "Rome", "open"),
        (YES_NO, "Yes, it is", "yes", "yes_no"),
        (YES_NO, "Perhaps", "Perhaps", "yes_no"),  # junk stays as it is, and is wrong
        (CHOICE, " B", "in Rome", "multiple_choice"),
    ],
)
def test_one_call_and_no_search(name, question, said, text, task):
    model = ScriptedModel({"": said})
    found = run(few_shot.Config(Reader(prompts=name)), model, question=question)
    assert found.value.text == text and found.value.trace["task"] == task
    assert found.value.trace["answer"]["raw"] == said
    assert found.cost["llm_calls"] == 1 and "searches" not in found.cost
    (asked,) = model.prompts
    assert asked.count(question.text) == 1
    role = {"open": "direct"}.get(task, f"direct_{task}")
    demonstrations = prompts.load(name).role(role).demonstrations
    assert len(demonstrations) >= 3
    assert all(user in asked and reply in asked for user, reply in demonstrations)
    assert ("B: in Rome" in asked) == (task == "multiple_choice")
