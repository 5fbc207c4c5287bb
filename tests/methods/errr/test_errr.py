"""ERRR on scripts: four steps, what each is shown, and pairs for distillation; RRR, its two."""

import json

import pytest

from jaxrag.methods.errr import errr, errr_pairs, rrr
from jaxrag.methods.errr.queries import ERRR, RRR, Prompted, StudentInput, Trained
from jaxrag.steps.candidates import Search
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool, needs_of
from tests import scripted
from tests.scripted import QUESTION, ScriptedIndex, ScriptedModel

PASSAGES = {"a": 0, "b": 20, "c": 50, "d": 80, "e": 90}
ANGLES = {"first": 0, "second": 90, "Where": 45}
READER = Reader(prompts="errr_small")
SEARCH = Search(m=2, merge="round_robin", read=3)
KNOWN = "It is said to be in Atlantis."


def last(prompt):
    return prompt.rpartition("\n\n")[2]


class Reads(ScriptedModel):
    """Looks only at what follows the demonstrations."""

    def reply(self, shown, settings, number):
        return super().reply(last(shown), settings, number)


SCRIPT = {"Queries:": "first; second **", "Background:": KNOWN, "Title": "Rome **"}


def run(config, *, llm=None, optimizer=None, question=QUESTION):
    index = ScriptedIndex(PASSAGES, ANGLES)
    llm = llm or Reads(SCRIPT)
    helpers = {field: LanguageModelTool(optimizer) for field in needs_of(config).helpers}
    outcome = scripted.run(config, llm, index, question=question, helpers=helpers)
    json.dumps(outcome.value.trace, allow_nan=False)
    return outcome.value, outcome.cost, [last(prompt) for prompt in llm.prompts]


def test_frozen_errr():
    config = errr.Config(search=SEARCH, reader=READER)
    answer, cost, (extracting, optimizing, reading) = run(config)
    assert answer.text == "Rome **" and answer.trace["pseudo_context"] == KNOWN
    assert extracting == "Question: Where is it?\nBackground:"
    assert optimizing == f"Context: {KNOWN}\nQuestion: Where is it?\nQueries:"
    # the reader sees the passages and the question itself, and neither C nor the queries
    assert reading.endswith("Question: Where is it?\nAnswer:")
    assert KNOWN not in reading and "first" not in reading
    assert answer.trace["selected"]["ids"] == ["a", "e", "b"]
    assert [text in reading for text in ("text of a", "text of c")] == [True, False]
    # docs/methods, "ERRR: algorithm": three calls in the frozen setting
    assert cost["llm_calls"] == 3 and cost["searches"] == 2


def test_trainable_errr():
    student = ScriptedModel({"": "second **"}, '{"model":"student"}')
    config = errr.Config(Trained(), SEARCH, reader=READER)
    answer, cost, asked = run(config, optimizer=student)
    assert student.prompts == [f"{ERRR} Where is it? Context: {KNOWN}"]
    assert answer.trace["selected"]["ids"] == ["e", "d"]
    # two calls of the reader, and the optimizer's
    assert len(asked) == 2 and cost["llm_calls"] == 3


@pytest.mark.parametrize(
    "optimizer", [Trained(StudentInput(context=False)), Prompted(context=False)]
)
def test_without_context_nothing_is_extracted(optimizer):
    student = ScriptedModel({"": "second **"}, '{"model":"student"}')
    config = errr.Config(optimizer, SEARCH, reader=READER)
    answer, cost, _ = run(config, optimizer=student)
    assert "pseudo_context" not in answer.trace and cost["llm_calls"] == 2


def test_an_empty_document_is_replaced_by_the_question():
    llm = Reads({**SCRIPT, "Background:": ("", [])})
    answer, _, (_, optimizing, _) = run(errr.Config(search=SEARCH, reader=READER), llm=llm)
    assert answer.trace["pseudo_context"] == ""
    assert optimizing.startswith("Context: Where is it?\n")


@pytest.mark.parametrize("method", [errr, rrr])
def test_the_question_can_be_searched_too(method):
    config = method.Config(search=SEARCH, search_question=True, reader=READER)
    answer, cost, _ = run(config)
    queries = [search["query"] for search in answer.trace["searches"]]
    assert queries == ["Where is it?", "first", "second"] and cost["searches"] == 3


def test_pairs_call_only_the_teacher():
    config = errr_pairs.Config(reader=READER)
    answer, cost, asked = run(config)
    assert len(asked) == 2 and cost["llm_calls"] == 2 and "searches" not in cost
    assert answer.text == "" and answer.trace["queries"]["texts"] == ["first", "second"]
    assert answer.trace["pseudo_context"] == KNOWN


def test_pairs_without_context_extract_nothing():
    config = errr_pairs.Config(Prompted(context=False), StudentInput(context=False), reader=READER)
    answer, cost, _ = run(config)
    assert cost["llm_calls"] == 1 and "pseudo_context" not in answer.trace
    shown = errr_pairs.Config(Prompted(context=False), StudentInput(), reader=READER)
    assert run(shown)[1]["llm_calls"] == 2


def test_frozen_rrr():
    answer, cost, (rewriting, reading) = run(
        rrr.Config(search=SEARCH, reader=READER), llm=Reads(SCRIPT)
    )
    assert rewriting == "Question: Where is it?\nQueries:"
    assert reading.endswith("Question: Where is it?\nAnswer:") and "first" not in reading
    assert answer.text == "Rome **" and answer.trace["selected"]["ids"] == ["a", "e", "b"]
    assert cost["llm_calls"] == 2 and cost["searches"] == 2
    assert "pseudo_context" not in answer.trace


def test_trainable_rrr():
    student = ScriptedModel({"": "second"}, '{"model":"student"}')
    config = rrr.Config(Trained(StudentInput(RRR, context=False)), SEARCH, reader=READER)
    answer, _, asked = run(config, optimizer=student)
    assert student.prompts == ["rewrite a better search query: Where is it?"] and len(asked) == 1
    assert answer.trace["selected"]["ids"] == ["e", "d"]
