"""ARS-RAG over scripted models: orders, counts, labels, rewards."""

import dataclasses
import json

import numpy as np
import pytest

from jaxrag.core.hashing import canonical
from jaxrag.methods.ars import ars
from jaxrag.methods.ars import labels as ars_labels
from jaxrag.methods.ars import rewards as ars_rewards
from jaxrag.methods.ars.relevance import RelevanceJudge
from jaxrag.methods.ars.rewrites import Rewriter
from jaxrag.methods.ars.strategies import Chosen, Fixed, Generated, Judged, Ranked, Shuffled
from jaxrag.steps.candidates import Search
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import RerankerTool
from jaxrag.types import InputError, Question
from tests import scripted
from tests.scripted import QUESTION, ScriptedIndex, ScriptedModel, ScriptedReranker

# Three rewrites, at 0, 40 and 90 degrees, and five passages around them: the two nearest to the
# first are a and b, to the second c and b (b is at 20, c at 50, so 40 is nearer to c), to the
# third e and d.
PASSAGES = {"a": 0, "b": 20, "c": 50, "d": 80, "e": 90}
QUERIES = {"first": 0, "second": 40, "third": 90, "Where": 60}
SMALL = Reader(prompts="small", answer_tokens=4)
REWRITER, SEARCH = Rewriter(n=3), Search(m=2, merge="concatenate")
WRITTEN = " the first?\n2. the second?\n3. the third?\n4. cut"


class Model(ScriptedModel):
    """Answers with the titles that it is shown; finds what holds "text of c" or "e" relevant."""

    def __init__(self, scores=None, **script):
        super().__init__(
            {"Rewrites:\n1.": WRITTEN, **script, "": "an answer"}, scores or self.likes
        )

    def reply(self, shown, settings, number):
        found, last = super().reply(shown, settings, number), shown.rpartition("\n\n")[2]
        if found == "an answer" and "Title" in last:
            return " ".join(name for name in PASSAGES if f"Title {name}." in last)
        return found

    def likes(self, prompt, word):
        relevant = "text of c" in prompt or "text of e" in prompt
        return -0.5 if relevant == (word == " relevant") else -2.0


JUDGE = RelevanceJudge("logprob", prompts="small")


class FixedBandit:
    identity = canonical({"bandit": "scripted"})
    encoder = None

    def __init__(self, k):
        self.k, self.seen = k, []

    def count(self, context, n):
        self.seen.append(context)
        return self.k


def run(config, *, ranker=None, bandit=None, model=None, question=QUESTION):
    helpers = {"order.ranker": RerankerTool(ranker)} if ranker else {}
    helpers |= {"count.bandit": bandit} if bandit else {}
    index = ScriptedIndex(PASSAGES, QUERIES)
    outcome = scripted.run(config, model or Model(), index, question=question, helpers=helpers)
    json.dumps(outcome.value.trace, allow_nan=False)
    return outcome


def made(order=Generated(), count=Fixed(3), reader=SMALL):  # noqa: B008
    return ars.Config(rewriter=REWRITER, order=order, count=count, search=SEARCH, reader=reader)


RANKER = ScriptedReranker(lambda query, text: {"f": 0.1, "s": -2.0, "t": 5.0}[text[4]])


def test_all_rewrites_in_order_of_generation():
    outcome = run(made())
    trace = outcome.value.trace
    assert [search["ids"] for search in trace["searches"]] == [["a", "b"], ["c", "b"], ["e", "d"]]
    assert trace["selected"]["ids"] == ["a", "b", "c", "e", "d"]  # the union, each once
    assert trace["kept"] == {"k": 3, "numbers": [0, 1, 2], "scores": []}
    # one generation of all rewrites and one answer; a search for each rewrite
    assert outcome.cost["llm_calls"] == 2 and outcome.cost["searches"] == 3


def test_ranked_and_reversed():
    best = run(made(Ranked(), Fixed(1)), ranker=RANKER).value.trace
    assert best["kept"] == {"k": 1, "numbers": [2, 0, 1], "scores": [5.0, 0.1, -2.0]}
    assert best["selected"]["ids"] == ["e", "d"]
    worst = run(made(Ranked(reverse=True), Fixed(2)), ranker=RANKER).value.trace
    assert worst["kept"]["numbers"] == [1, 0, 2]
    assert worst["selected"]["ids"] == ["c", "b", "a"]


def test_the_original_pipeline_judges_every_passage_once():
    model = Model()
    outcome = run(made(Judged(JUDGE), Fixed(1)), model=model)
    trace = outcome.value.trace
    # relevant are c and e: none of the first rewrite, one of the second, one of the third
    assert trace["judged"] == {"passages": 5, "relevant": [0, 1, 1]}
    assert trace["kept"]["numbers"] == [1, 2, 0]  # equals stay as generated
    assert len(model.scored) == 2 * 5  # two words for each of five passages, b being judged once
    # passages that are only judged are told from those that are read
    assert [search["path"] for search in trace["searches"]] == [*["judged"] * 3, "r1"]


def test_the_bandit_chooses_k():
    bandit = FixedBandit(2)
    trace = run(made(Ranked(), Chosen()), ranker=RANKER, bandit=bandit).value.trace
    assert trace["kept"]["k"] == 2 and trace["selected"]["ids"] == ["e", "d", "a", "b"]
    np.testing.assert_allclose(bandit.seen[0], [0.5, 3**0.5 / 2], atol=1e-6)  # 60 degrees


def test_shuffles_depend_on_the_seed():
    orders = {
        seed: tuple(run(made(Shuffled(seed))).value.trace["kept"]["numbers"])
        for seed in (0, 0, 1, 2, 3, 4)
    }
    assert all(sorted(order) == [0, 1, 2] for order in orders.values())
    assert len(set(orders.values())) > 1
    other = Question("q2", QUESTION.text, ("Rome",))
    found = [tuple(run(made(Shuffled(s)), question=other).value.trace["kept"]["numbers"])
             for s in range(5)]  # fmt: skip
    assert found != [orders[s] for s in range(5)]  # another question is shuffled in its own way


def test_rewards_answer_from_every_k():
    config = ars_rewards.Config(rewriter=REWRITER, order=Ranked(), search=SEARCH, reader=SMALL)
    model = Model()
    outcome = run(config, ranker=RANKER, model=model)
    trace = outcome.value.trace
    assert trace["read"] == [["e", "d"], ["e", "d", "a", "b"], ["e", "d", "a", "b", "c"]]
    # the model repeats the titles that it was shown, in the corpus's order
    assert trace["answers"] == ["d e", "a b d e", "a b c d e"] and outcome.value.text == "a b c d e"
    for k in (1, 2, 3):
        alone = run(made(Ranked(), Fixed(k)), ranker=RANKER)
        assert alone.value.text == trace["answers"][k - 1]
    assert outcome.cost["searches"] == 3


def test_labels_count_relevant_passages():
    config = ars_labels.Config(
        REWRITER, SEARCH, RelevanceJudge("logprob", prompts="small"), 1.0, SMALL
    )
    model = Model(**{"text of a\nThe passage is": "relevant", "The passage is": "hm"})
    trace = run(config, model=model).value.trace
    assert {n: v["relevant"] for n, v in trace["judged"]["logprob"].items()} == {
        "a": 0, "b": 0, "c": 1, "d": 0, "e": 1,
    }  # fmt: skip
    assert {n: v["relevant"] for n, v in trace["judged"]["word"].items()} == {
        "a": 1, "b": 0, "c": 0, "d": 0, "e": 0,
    }  # fmt: skip
    assert sum(v["junk"] for v in trace["judged"]["word"].values()) == 4
    assert trace["judged"]["word"]["a"]["probability"] is None


def test_gold_labels_make_no_judge_calls():
    model = Model()
    outcome = run(ars_labels.Config(REWRITER, SEARCH, None, 1.0, SMALL), model=model)
    assert outcome.value.trace["judged"] == {} and not model.scored
    assert outcome.cost["llm_calls"] == 1 and len(outcome.value.trace["searches"]) == 3


def test_a_share_of_passages_is_judged_both_ways():
    config = ars_labels.Config(
        REWRITER, SEARCH, RelevanceJudge("logprob", prompts="small"), 0.0, SMALL
    )
    assert list(run(config).value.trace["judged"]) == ["logprob"]
    shares = [
        len(run(dataclasses.replace(config, compared=0.5),
                question=Question(f"q{i}", "Where is it?", ())).value.trace["judged"]) - 1
        for i in range(20)
    ]  # fmt: skip
    assert 0 < sum(shares) < 20


@pytest.mark.parametrize(
    "config, said",
    [
        (made(Ranked()), r"RewriteRanker\(checkpoint='', transfer=False\) is not loaded"),
        (made(count=Chosen()), r"CountBandit\(.*context=None\) is not loaded"),
        (made(count=Fixed(4)), r"count.k is 4, and there are 3 rewrites"),
    ],
)
def test_missing_helpers_are_named(config, said):
    with pytest.raises(InputError, match=said):
        run(config)
