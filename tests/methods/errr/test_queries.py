"""Queries on scripts: who writes them, what the trace tells, how they are searched for."""

import dataclasses
import json

import pytest

from jaxrag.methods.errr import queries
from jaxrag.methods.errr.parsed_queries import parse_queries
from jaxrag.methods.errr.queries import ERRR, RRR, Prompted, StudentInput, Trained
from jaxrag.steps import prompts
from jaxrag.steps.candidates import Search
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool, ModelHelper, needs_of
from jaxrag.types import InputError, Question
from tests.scripted import QUESTION, ScriptedIndex, ScriptedModel, run_step, tools_of

PASSAGES = {"a": 0, "b": 20, "c": 50, "d": 80, "e": 90}
ANGLES = {"first": 0, "second": 90, "Where": 45}
READER = Reader(prompts="errr_small")


def run(step, *, llm=None, optimizer=None, index=None, question=QUESTION):
    """What ``step(episode)`` gives, the trace, and the cost."""
    tools = tools_of(llm or ScriptedModel({}), index)
    helpers = {ModelHelper(Trained().model): LanguageModelTool(optimizer)} if optimizer else {}
    tools = dataclasses.replace(tools, helpers=helpers)

    async def answer(question, tools):
        episode = Episode(question, tools, READER)
        return await step(episode), episode.trace

    outcome = run_step(answer, tools, question)
    value, trace = outcome.value
    json.dumps(trace, allow_nan=False)
    return value, trace, outcome.cost


def written(writer, context="", **models):
    return run(lambda episode: writer(episode, context), **models)


def test_the_reader_writes_from_the_question_alone():
    llm = ScriptedModel({"": " first; second; ; First **"})
    found, trace, cost = written(Prompted(context=False), "what it knows", llm=llm)
    assert found == ("first", "second") and cost["llm_calls"] == 1
    raw = " first; second; ; First **"
    assert trace["queries"] == {
        "texts": ["first", "second"], "parsed": True, "dropped": 0, "raw": raw,
    }  # fmt: skip
    (asked,) = llm.prompts
    assert asked.endswith("Question: Where is it?\nQueries:") and "what it knows" not in asked


def test_the_reader_is_shown_the_extracted_knowledge():
    llm = ScriptedModel({"": "first; second **"})
    assert written(Prompted(most=1), "what it knows", llm=llm)[0] == ("first",)
    assert llm.prompts[0].endswith("Context: what it knows\nQuestion: Where is it?\nQueries:")


def test_the_trained_model_gets_plain_text():
    optimizer = ScriptedModel({"": "first; second **"}, '{"model":"student"}')
    found, trace, _ = written(Trained(most=1), "what\nit  knows", optimizer=optimizer)
    assert found == ("first",) and trace["queries"]["dropped"] == 1
    assert optimizer.prompts == [f"{ERRR} Where is it? Context: what it knows"]
    written(Trained(StudentInput(RRR, False, "\nQueries:")), "known", optimizer=optimizer)
    assert optimizer.prompts[1] == "rewrite a better search query: Where is it?\nQueries:"


def test_the_instructions_are_the_papers():
    assert ERRR == (
        "Rewrite better search queries to acquire or validate the knowledge needed for the "
        "question:"
    )
    assert RRR == "rewrite a better search query:"


@pytest.mark.parametrize("writer", [Prompted(context=False), Trained(StudentInput(context=False))])
def test_unparsable_output_gives_the_question_and_is_recorded(writer):
    junk = ScriptedModel({"": "; ; **"}, '{"model":"junk"}')
    found, trace, _ = written(writer, llm=junk, optimizer=junk)
    assert found == (QUESTION.text,)
    assert trace["queries"]["parsed"] is False and trace["queries"]["raw"] == "; ; **"


def test_an_incomplete_query_is_dropped_unless_the_list_is_terminated():
    # a scripted reply is always one that ran out of tokens
    torn = ScriptedModel({"": "first; secon"})
    assert written(Prompted(context=False), llm=torn)[0] == ("first",)
    whole = ScriptedModel({"": "first; second ** and"})
    assert written(Prompted(context=False), llm=whole)[0] == ("first", "second")


def test_a_generation_ended_by_a_stop_string_is_complete():
    stops = ScriptedModel(("first; second ", [0.5], "stop"))
    found, _, _ = written(Prompted(context=False), llm=stops)
    assert found == ("first", "second")


def test_a_missing_optimizer_is_refused_with_the_setting_to_give():
    (helper,) = needs_of(Trained()).helpers.values()
    with pytest.raises(InputError, match=r"--config\.method\.optimizer\.model\.checkpoint="):
        helper.check("config.method.optimizer.model")
    with pytest.raises(InputError, match="is not loaded"):
        written(Trained())


def searched(texts, search, itself=False):
    index = ScriptedIndex(PASSAGES, ANGLES)

    async def read(episode):
        pool = await queries.search_for(episode, texts, search, search_question=itself)
        return await episode.answer(pool)

    _, trace, cost = run(read, llm=ScriptedModel("Rome"), index=index)
    return trace, cost


# The first (0 degrees) finds a, b, c; the second (90) e, d, c; the question (45) c, b, d.
@pytest.mark.parametrize(
    "merge, itself, ids",
    [
        ("concatenate", False, ["a", "b", "c", "e"]),
        ("round_robin", False, ["a", "e", "b", "d"]),
        # c: 2/63 = 0.0317; a and e: 1/61 = 0.0164; b and d: 1/62 = 0.0161
        ("fusion", False, ["c", "a", "e", "b"]),
        ("concatenate", True, ["c", "b", "d", "a"]),
        # c: 1/61 + 2/63 = 0.0481; b: 2/62 = 0.0323; d: 1/62 + 1/63 = 0.0320; a and e: 1/61
        ("fusion", True, ["c", "b", "d", "a"]),
    ],
)
def test_merging_and_the_question_itself(merge, itself, ids):
    trace, cost = searched(("first", "second"), Search(m=3, merge=merge, read=4), itself)
    assert trace["selected"]["ids"] == ids
    asked = ["Where is it?"] * itself + ["first", "second"]
    assert [search["query"] for search in trace["searches"]] == asked
    assert cost["searches"] == len(asked)


def test_the_question_is_searched_for_once():
    trace, _ = searched(("where is it", "first"), Search(m=1), itself=True)
    assert [search["query"] for search in trace["searches"]] == ["Where is it?", "first"]


SETS = [f"{base}{data}" for base in ("errr", "errr_small")
        for data in ("", "_popqa", "_ambigqa", "_hotpotqa", "_factbook")]  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_every_data_set_has_one_to_three_demonstrations(name):
    found = prompts.load(name)
    for role in ("direct", "context"):
        template = found.role(role)
        assert 1 <= len(template.demonstrations) <= 3 and "**" in template.stop
        for asked, answer in template.demonstrations:
            assert answer.endswith(" **") and asked.endswith("Answer:")
            assert len(answer.split()) <= 5
    # the ways of writing queries are the same for all data sets
    base = prompts.load("errr_small" if "small" in name else "errr")
    for role in ("queries", "queries_from_context", "pseudo_context"):
        assert found.role(role) == base.role(role)


@pytest.mark.parametrize("name", ["errr", "errr_small"])
@pytest.mark.parametrize("role", ["queries", "queries_from_context"])
def test_the_demonstrations_of_queries_can_be_read(name, role):
    demonstrations = prompts.load(name).role(role).demonstrations
    assert len(demonstrations) == 2
    for _, told in demonstrations:
        found = parse_queries(told, "?")
        assert found.parsed and len(found.texts) >= 2 and told == f"{'; '.join(found.texts)} **"


def test_the_small_prompts_are_short():
    """Words of the longest prompt, with C of 50 words and a passage of 50: some 450 tokens."""
    long = "word " * 50
    for name in SETS:
        if "small" in name:
            found = prompts.load(name)
            asked = (
                found.role("context").prompt(question="Where?", passages=long),
                found.role("queries_from_context").prompt(question="Where?", context=long),
            )
            assert max(len(str(one).split()) for one in asked) < 300


def test_questions_with_choices_show_them_to_the_reader():
    llm = ScriptedModel({"": "first **"})
    question = Question("q", "Which?", ("b",), ("a", "b"))
    written(Prompted(context=False), llm=llm, question=question)
    assert "Question: Which?\nChoices: a; b\nQueries:" in llm.prompts[0]
