"""RRR on scripts: queries from the question alone, the question answered."""

from jaxrag.methods.errr import rrr
from jaxrag.methods.errr.queries import RRR, StudentInput, Trained
from jaxrag.steps.candidates import Search
from jaxrag.steps.reader import Reader
from tests.methods.errr.test_errr import SCRIPT, SEARCH, Reads, run
from tests.scripted import ScriptedModel

READER = Reader(prompts="errr_small")


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


def test_the_question_can_be_searched_too():
    config = rrr.Config(search=Search(m=1), search_question=True, reader=READER)
    answer, cost, _ = run(config)
    assert cost["searches"] == 3 and answer.trace["searches"][0]["query"] == "Where is it?"
