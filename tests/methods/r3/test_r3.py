"""R3's prompts in full, its lengths, and what it makes of answers."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from jaxrag.configs.r3 import get_config
from jaxrag.core.store import Store
from jaxrag.methods.r3 import r3
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import InputError, Question
from tests.methods.test_text_retriever import WordIndex
from tests.scripted import ScriptedModel, run

OPEN = Question("o", "Where is it?", ("Rome",))
CLAIM = Question("f", "It is in Rome.", ("true",), task="fact_checking")
CHOICE = Question("m", "What is red?", ("a rose",), ("the sea", "a rose", "the sky"))
PREAMBLE = (
    "What follows is an instruction that sets a task. Give a response that does what is asked.\n\n"
)


def index(count=2):
    made = WordIndex(*(f"it is here {i}" for i in range(count)))
    made.rows = [dataclasses.replace(p, title=f"Title {i}") for i, p in enumerate(made.rows)]
    return made


def ask(question, reply, config=None, passages=2):
    model = ScriptedModel({"": reply})
    return run(config or r3.Config(), model, index(passages), question=question), model


def test_an_open_question_reads_one_passage():
    outcome, model = ask(OPEN, "Rome\n\n### Explanation:\nIt is.")
    assert model.prompts == [
        "### Paragraph:\n[1] Title 0\nit is here 0\n\n### Instruction:\nWhere is it?\n\n"
        "### Response:\n"
    ]
    assert model.settings[0]["max_new_tokens"] == 100
    assert model.settings[0]["stop"] == ("### Paragraph", "### Instruction", "### Input")
    # all of it counts, the explanation too
    assert outcome.value.text == "Rome\n\n### Explanation:\nIt is."
    assert outcome.value.trace["task"] == "open"
    assert outcome.value.trace["selected"]["ids"] == ["p0"]
    assert outcome.cost["llm_calls"] == 1 and outcome.cost["searches"] == 1


def test_ten_passages_are_numbered_best_first():
    config = r3.Config(candidates=OnePath(n=10), select=Top(k=10))
    outcome, model = ask(OPEN, "Rome", config, passages=12)
    assert outcome.value.trace["selected"]["ids"] == [f"p{i}" for i in range(10)]
    (prompt,) = model.prompts
    assert "\n\n[10] Title 9\nit is here 9\n\n### Instruction" in prompt
    assert prompt.count("### Paragraph") == 1 and "[11]" not in prompt


def test_a_statement_is_judged():
    outcome, model = ask(CLAIM, "true, as it says")
    assert model.prompts == [
        f"{PREAMBLE}### Paragraph:\n[1] Title 0\nit is here 0\n\n### Instruction:\n"
        "Judge the statement below: reply true where it is correct, and false where it is not.\n\n"
        "### Input:\nIt is in Rome.\n\n### Response:\n"
    ]
    assert model.settings[0]["max_new_tokens"] == 20
    assert outcome.value.text == "true, as it says" and outcome.value.trace["task"] == CLAIM.task


def test_a_multiple_choice_is_answered_by_a_letter():
    outcome, model = ask(CHOICE, "B\n\n### Explanation:\nThat is so.")
    (prompt,) = model.prompts
    assert prompt.startswith(PREAMBLE)
    end = "### Input:\nWhat is red?\nA: the sea\nB: a rose\nC: the sky\n\n### Response:\n"
    assert prompt.endswith(end) and "Choices:" not in prompt
    assert model.settings[0]["max_new_tokens"] == 20
    assert outcome.value.text == "a rose"
    assert outcome.value.trace["answer"]["text"] == "a rose"
    assert outcome.value.trace["answer"]["raw"].startswith("B\n")


def test_accuracy_along_a_training_is_that_of_the_option_that_is_named():
    part = dataclasses.replace(CHOICE, answers=("a rose",), choices=("a rose", "a rose or the sea"))
    questions, model, rows = (CHOICE, part), ScriptedModel({"": "B"}), index()
    dataset: Any = SimpleNamespace(
        questions=[dataclasses.replace(q, id=str(i)) for i, q in enumerate(questions)],
        passages=SimpleNamespace(find=lambda ids: [rows.rows[0] for _ in ids]),
    )
    job: Any = get_config("train_r3@tiny")
    job = dataclasses.replace(job, method=r3.Config())
    evaluate = job._evaluation(dataset, lambda *_: rows, LanguageModelTool(model), Store(None))
    assert evaluate(None, 0)["rag_accuracy"].tolist() == [1, 0]
    dataset.questions = []  # as of a corpus alone
    none = job._evaluation(dataset, lambda *_: rows, LanguageModelTool(model), Store(None))(None, 0)
    assert none["rag_accuracy"].tolist() == []


def test_invalid_settings_are_refused(tmp_path):
    letters = dataclasses.replace(CHOICE, answers=("B",))
    with pytest.raises(InputError, match=r"Question m: none of its options .*\['B'\]"):
        ask(letters, "B")
    file = tmp_path / "mine.toml"
    file.write_text('[context]\nuser = "{passages} {question}"\n')
    with pytest.raises(InputError, match=r"mine\.toml has no \[multiple_choice\]"):
        ask(CHOICE, "B", r3.Config(reader=Reader(prompts=str(file), by="logprob")))
    assert ask(dataclasses.replace(CHOICE, answers=()), "B")[0].value.text == "a rose"
