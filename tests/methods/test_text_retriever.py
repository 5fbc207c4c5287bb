"""Methods over an index that is asked with texts and has no vectors."""

from types import SimpleNamespace

import pytest

from jaxrag.engines.scheduler import Scheduler
from jaxrag.engines.store import Store
from jaxrag.methods import hyde, standard_rag
from jaxrag.methods.candidates import DualPath, FixedMix, OnePath
from jaxrag.methods.language_model_tool import LanguageModelTool
from jaxrag.methods.search_tools import RetrieverTool
from jaxrag.methods.selectors import AIS, Rerank, Top
from jaxrag.methods.steps import Reader
from jaxrag.methods.tools import Tools
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.types import InputError, Passage, Question, Ranking
from tests.methods.scripted import QUESTION, ScriptedIndex, ScriptedModel, ScriptedReranker, run

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


def test_the_two_kinds_are_told_apart():
    assert isinstance(index(), TextRetriever)
    assert not isinstance(ScriptedIndex({"a": 0}, {}), TextRetriever)
    assert not hasattr(Retriever, "search_texts")


def test_a_search_is_one_request_by_text():
    words = index()
    config = standard_rag.Config(OnePath(n=2), Top(k=2), READER)
    outcome = run(standard_rag.answer, config, ScriptedModel(MODEL), words)
    # "Where is it?": "it?" is no word of the passages, so both share two, or one.
    assert words.asked == [(["Where is it?"], 2)]
    assert outcome.value.trace["selected"]["ids"] == ["p1", "p0"]
    assert outcome.value.trace["searches"][0]["scores"] == [2.0, 1.0]
    assert outcome.cost["searches"] == 1 and outcome.value.text == "Rome"


def test_questions_are_searched_together_and_never_twice():
    words, store = index(), Store(None)
    tools = Tools(LanguageModelTool(ScriptedModel(MODEL)), RetrieverTool(words))
    config = standard_rag.Config(OnePath(n=2), Top(k=1), READER)
    questions = [Question(str(i), text, ()) for i, text in enumerate(["red", "rome", "red"])]

    def answers(config):
        starts = [(q.id, lambda q=q: standard_rag.answer(q, tools, config)) for q in questions]
        found = {outcome.id: outcome.value for outcome in Scheduler(store).run(starts)}
        return [found[question.id].trace["selected"]["ids"] for question in questions]

    assert answers(config) == [["p0"], ["p2"], ["p0"]]
    assert words.asked == [(["red", "rome"], 2)]
    assert answers(config) == [["p0"], ["p2"], ["p0"]]
    assert len(words.asked) == 1  # the store knew both
    answers(standard_rag.Config(OnePath(n=3), Top(k=1), READER))
    words.identity = '{"index":"others"}'
    tools = Tools(LanguageModelTool(ScriptedModel(MODEL)), RetrieverTool(words))
    answers(config)
    assert [k for _, k in words.asked] == [2, 3, 2]  # another k, and another index


def test_dual_paths_and_rerankers_do_without_vectors():
    for candidates in (DualPath(n=2), FixedMix(from_query=1, from_pseudo=1)):
        config = hyde.Config(candidates, Top(k=2), READER)
        words = index()
        outcome = run(hyde.answer, config, ScriptedModel(MODEL), words)
        assert outcome.value.trace["selected"]["ids"][0] == "p1"
        assert outcome.cost["searches"] == 2
    config = standard_rag.Config(OnePath(n=4), Rerank(k=1), READER)
    reranker = ScriptedReranker(lambda query, passage: float("green" in passage))
    outcome = run(standard_rag.answer, config, ScriptedModel(MODEL), index(), reranker=reranker)
    assert outcome.value.trace["selected"]["ids"] == ["p3"]


def test_what_needs_vectors_is_told_so():
    tool = RetrieverTool(index())
    for ask in (lambda: tool.embed("x"), lambda: tool.vectors([0])):
        with pytest.raises(
            InputError, match=r"vectors of passages .*Exact or Scann.*Top or Rerank"
        ):
            ask()
    config = hyde.Config(DualPath(n=2), AIS(k=1), READER)
    with pytest.raises(InputError, match="works with vectors"):
        run(hyde.answer, config, ScriptedModel(MODEL), index(), question=QUESTION)
    assert AIS().needs_vectors and not hasattr(Top(), "needs_vectors")
