"""Methods over an index that is asked with texts and has no vectors."""

import dataclasses
from types import SimpleNamespace

import pytest

from jaxrag.core.store import Store
from jaxrag.engines.scheduler import Scheduler
from jaxrag.methods.retrieve_and_read import HYDE, STANDARD_RAG
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.steps.candidates import DualPath, OnePath
from jaxrag.steps.episode import answer_question
from jaxrag.steps.passage_selectors import AIS, Top
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool, RetrieverTool, Tools
from jaxrag.types import InputError, Passage, Question, Ranking
from tests.scripted import QUESTION, ScriptedIndex, ScriptedModel, run

READER = Reader(prompts="small")
MODEL = {"": "Rome"}


class WordIndex:
    """Ranks passages by how many of the query's words they hold."""

    def __init__(self, *texts):
        self.rows = [Passage(f"p{i}", "", text) for i, text in enumerate(texts)]
        self.passages = SimpleNamespace(get=lambda rows: [self.rows[row] for row in rows])
        self.identity, self.asked = '{"index":"words"}', []

    def search_texts(self, texts, k):
        self.asked.append((list(texts), k))
        return [self._one({*text.lower().split()}, k) for text in texts]

    def _one(self, words, k):
        scores = [len(words & {*row.text.split()}) for row in self.rows]
        order = sorted(range(len(scores)), key=lambda i: -scores[i])[:k]
        return Ranking(tuple(order), tuple(float(scores[i]) for i in order))


def index():
    return WordIndex("it is red", "where is it", "rome", "green")


def test_text_and_vector_retrievers_are_distinguished():
    assert isinstance(index(), TextRetriever)
    assert not isinstance(ScriptedIndex({"a": 0}, {}), TextRetriever)
    assert not hasattr(Retriever, "search_texts")


def test_questions_are_searched_together_and_never_twice():
    words, store = index(), Store(None)
    tools = Tools(LanguageModelTool(ScriptedModel(MODEL)), RetrieverTool(words))
    config = dataclasses.replace(
        STANDARD_RAG, candidates=OnePath(n=2), select=Top(k=1), reader=READER
    )
    questions = [Question(str(i), text, ()) for i, text in enumerate(["red", "rome", "red"])]

    def answers(config):
        starts = [(q.id, lambda q=q: answer_question(config, q, tools)) for q in questions]
        found = {outcome.id: outcome.value for outcome in Scheduler(store).run(starts)}
        return [found[question.id].trace["selected"]["ids"] for question in questions]

    assert answers(config) == [["p0"], ["p2"], ["p0"]]
    assert words.asked == [(["red", "rome"], 2)]
    assert answers(config) == [["p0"], ["p2"], ["p0"]]
    assert len(words.asked) == 1  # the store knew both
    answers(
        dataclasses.replace(STANDARD_RAG, candidates=OnePath(n=3), select=Top(k=1), reader=READER)
    )
    words.identity = '{"index":"others"}'
    tools = Tools(LanguageModelTool(ScriptedModel(MODEL)), RetrieverTool(words))
    answers(config)
    assert [k for _, k in words.asked] == [2, 3, 2]  # another k, and another index


def test_methods_that_need_vectors_are_refused():
    tool = RetrieverTool(index())
    for ask in (lambda: tool.embed("x"), lambda: tool.vectors([0])):
        with pytest.raises(
            InputError, match=r"vectors of passages .*Exact or Scann.*Top or Rerank"
        ):
            ask()
    config = dataclasses.replace(HYDE, candidates=DualPath(n=2), select=AIS(k=1), reader=READER)
    with pytest.raises(InputError, match="works with vectors"):
        run(config, ScriptedModel(MODEL), index(), question=QUESTION)
    assert AIS().needs.vectors and not Top().needs.vectors
