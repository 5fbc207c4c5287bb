"""Episodes: what they record of any method, a researcher's own included."""

import dataclasses
import logging

import pytest

from jaxrag.engines.local.engine import Local
from jaxrag.engines.scheduler import gather
from jaxrag.evaluation import metrics
from jaxrag.steps import gates, retrieve_and_read
from jaxrag.steps.episode import Episode, Gate, Pool, Scored
from jaxrag.steps.reader import NO_ANSWER, Reader
from jaxrag.steps.tools import ModelHelper, Needs, needs_of
from tests.scripted import QUESTION, ScriptedIndex, ScriptedModel, run, run_episode, tools_of
from tests.steps.closed_questions import CHOICE

# Angles of passages and queries: "capital" finds d, "Rome" c and then b.
PASSAGES = {"a": 10, "b": 20, "c": 30, "d": 90}
QUERIES = {"capital": 90, "Rome": 30, "Where": 0}
READER = Reader(prompts="dtr")


def index():
    return ScriptedIndex(PASSAGES, QUERIES)


def test_searches_are_in_the_order_of_their_calls():
    """The first has to wait for an answer of the model before it searches, the second has not."""

    async def step(episode):
        async def later():
            await episode.ask("direct")
            await episode.search("Where", 1, path="later")

        await gather(
            later(), episode.search("capital", 1, path="p"), episode.search("Rome", 1, path="q")
        )

    _, trace = run_episode(step, tools_of(ScriptedModel("Rome"), index()))
    assert [search["path"] for search in trace["searches"]] == ["p", "q", "later"]
    assert [search["ids"] for search in trace["searches"]] == [["d"], ["c"], ["a"]]


def test_hidden_passages_are_found_by_no_search():
    question = dataclasses.replace(QUESTION, hidden=("c", "elsewhere"))

    async def step(episode):
        await episode.search("Rome", 2)
        await episode.about("Rome", path="part").search("Rome", 1)

    _, trace = run_episode(step, tools_of(ScriptedModel({}), index()), question)
    assert [search["ids"] for search in trace["searches"]] == [["b", "a"], ["b"]]


def test_direct_answers_and_pseudo_contexts_are_asked_once():
    async def step(episode):
        first, again = await episode.direct(), await episode.direct()
        await episode.pseudo_context()
        return first is again, await episode.pseudo_context()

    model = ScriptedModel({"passage": "", "": "Rome"})
    (same, pseudo), trace = run_episode(step, tools_of(model), reader=READER)
    assert same and len(model.prompts) == 2
    # the question is searched by in place of an empty text, which the trace shows
    assert pseudo == QUESTION.text and trace["pseudo_context"] == ""


def test_names_of_the_episode_are_refused_in_notes():
    episode = Episode(QUESTION, tools_of(ScriptedModel()), READER)
    episode.note(branches=2)
    assert episode.trace["branches"] == 2
    for name in ("task", "direct", "gate", "searches", "selected", "answer", "option"):
        with pytest.raises(ValueError, match=rf"\['{name}'\].*choose other names"):
            episode.note(**{name: 1})
    assert episode.trace == {"task": "open", "branches": 2}


def test_selected_passages_have_the_scores_of_their_selection():
    episode = Episode(QUESTION, tools_of(ScriptedModel(), index()), READER)
    pool = Pool((0, 1, 3), (0.9, 0.8, 0.1))
    columns = {"s1": pool.scores, "score": (0.2, 0.7, 0.5)}
    kept = episode.selected(Scored(columns, (1, 2), {"logprob": -1.5}), pool)
    assert kept == Pool((1, 3), (0.7, 0.5))
    assert episode.trace["selected"] == {
        "ids": ["b", "d"],
        "scores": [0.7, 0.5],
        "logprob": -1.5,
        "candidates": [
            {"id": "a", "s1": 0.9, "score": 0.2},
            {"id": "b", "s1": 0.8, "score": 0.7},
            {"id": "d", "s1": 0.1, "score": 0.5},
        ],
    }


def test_unions_keep_the_first_place_and_score():
    first, other = Pool((2, 0), (0.9, 0.5)), Pool((0, 3), (0.8, 0.7))
    assert first.union(other) == Pool((2, 0, 3), (0.9, 0.5, 0.7))
    assert len(first) == 2 and first.first(1) == Pool((2,), (0.9,)) and not Pool()


@dataclasses.dataclass(frozen=True)
class OfSteps:
    """A method whose answer is a function of the episode."""

    step: object
    name = "of_steps"
    reader = READER

    def answer(self, episode):
        return self.step(episode)


def test_an_answer_that_a_method_only_asked_for_is_concluded():
    async def step(episode):
        first = await episode.search("Rome", 1)
        await episode.ask("context", passages=first)
        return await episode.ask("context", passages=await episode.search("capital", 1))

    outcome = run(OfSteps(step), ScriptedModel(["Oslo", "Rome"]), index())
    trace = outcome.value.trace
    assert outcome.value.text == "Rome" == trace["answer"]["text"]
    assert trace["selected"]["ids"] == ["c", "d"]  # all passages that prompts showed
    assert metrics.gate({"trace": trace})["trigger"] == 1


def test_passages_that_were_kept_count_and_not_all_that_were_shown():
    async def step(episode):
        pool = await episode.search("Rome", 3)
        await episode.ask("context", passages=pool)
        kept = episode.selected(Scored({"score": pool.scores}, (0,)), pool)
        return await episode.ask("context", passages=kept)

    trace = run(OfSteps(step), ScriptedModel("Rome"), index()).value.trace
    assert trace["selected"]["ids"] == ["c"]


def test_candidates_of_a_selection_go_with_it():
    async def step(episode):
        pool = await episode.search("Rome", 3)
        episode.selected(Scored({"score": pool.scores}, (0,)), pool)
        return await episode.answer(pool.at([1]))

    trace = run(OfSteps(step), ScriptedModel("Rome"), index()).value.trace
    assert trace["selected"].keys() == {"ids", "scores"} and trace["selected"]["ids"] == ["b"]


def test_a_part_without_a_search_records_none():
    async def step(episode):
        episode.about("the capital", path="sentence 1")
        return await episode.answer()

    assert "searches" not in run(OfSteps(step), ScriptedModel("Rome"), index()).value.trace


def test_a_method_that_writes_data_has_no_answer():
    async def step(episode):
        episode.note(label="multi")
        return NO_ANSWER

    answer = run(OfSteps(step), ScriptedModel()).value
    assert answer.text == "" and answer.trace == {"task": "open", "label": "multi"}


def test_searches_about_a_part_are_recorded_with_the_question():
    async def step(episode):
        part = episode.about("the capital", path="sentence 1")
        assert (part.question.text, part.question.id) == ("the capital", QUESTION.id)
        pool = await part.search(part.question.text, 1)
        await part.direct()
        await episode.search("Rome", 1)
        return await episode.answer(pool)

    model = ScriptedModel({"the capital\n": "Oslo", "": "Rome"})
    trace = run(OfSteps(step), model, index()).value.trace
    assert [(s["path"], s["ids"]) for s in trace["searches"]] == [
        ("sentence 1", ["d"]),
        ("q", ["c"]),
    ]
    assert "direct" not in trace  # the part's own
    assert trace["answer"]["text"] == "Rome" and trace["selected"]["ids"] == ["d"]


def test_an_episode_apart_has_a_trace_of_its_own():
    async def step(episode):
        other = episode.apart()
        await other.answer(await other.search("capital", 1))
        assert other.question is episode.question and "answer" in other.trace
        return await episode.answer()

    trace = run(OfSteps(step), ScriptedModel("Rome"), index()).value.trace
    assert "searches" not in trace and "selected" not in trace and "direct" in trace


@dataclasses.dataclass(frozen=True)
class Judge:
    """A part with a model of its own that scores texts."""

    needs = Needs(scores=True)

    model: Local | None = None


@dataclasses.dataclass(frozen=True)
class Nested:
    """A method with parts in parts."""

    gate: Gate | None = None
    judge: Judge = Judge()
    inner: retrieve_and_read.Config = retrieve_and_read.Config()


def test_needs_are_those_of_all_parts():
    plain = needs_of(Nested())
    assert (plain.search, plain.scores, plain.helpers) == (True, True, {})
    own, other = Local("somewhere"), Local("elsewhere")
    gated = retrieve_and_read.Config(gates.JudgeGate(own), reader=Reader(truncate=True))
    needs = needs_of(Nested(gates.JudgeGate(own), Judge(other), gated))
    assert needs.helpers.keys() == {"gate.judge", "judge.model", "inner.gate.judge"}
    # parts with the same settings share one loaded model
    assert needs.helpers["gate.judge"] == needs.helpers["inner.gate.judge"] == ModelHelper(own)
    # the model of the judge must score texts, the run's need not
    assert needs.helpers["judge.model"].scores and not needs.helpers["gate.judge"].scores
    assert needs.search and needs.prompt_length and not needs.scores
    assert needs_of(Nested(inner=retrieve_and_read.Config(candidates=None))).search is False


def test_prompts_without_a_role_for_closed_questions_ask_by_the_open_one(tmp_path, caplog):
    file = tmp_path / "mine.toml"
    file.write_text(
        '[direct]\nuser = "{question} Say:"\n[context]\nuser = "{passages} {question} Say:"\n'
    )
    reader = Reader(prompts=str(file), closed_tokens=3)
    model = ScriptedModel({"Say:": "B"})
    with caplog.at_level(logging.WARNING, logger="jaxrag"):
        for _ in range(2):
            reply, trace = run_episode(
                lambda episode: episode.answer(), tools_of(model), CHOICE, reader
            )
            assert reply.text == "a rose" and trace["option"]["said"] == 1
    assert "Choices: the sea; a rose; the sky Say:" in model.prompts[0]
    # it may answer as freely as to an open question
    assert model.settings[0]["max_new_tokens"] == reader.answer_tokens
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "mine.toml has no [direct_multiple_choice]" in warning and "[direct]" in warning
