"""The contract of methods, for each kind of question: what is asked, recorded and needed."""

import json
import re
from typing import Any

import pytest

from jaxrag.core.store import Store
from jaxrag.engines.scheduler import Scheduler
from jaxrag.methods import dtr, pairs
from jaxrag.methods.ars import ars
from jaxrag.methods.ars.rewrites import Rewriter
from jaxrag.methods.ars.strategies import Fixed, Generated
from jaxrag.methods.baselines import chain_of_thought, cor, fairrag, few_shot, rankrag, replug
from jaxrag.methods.errr import errr, rrr
from jaxrag.methods.inspecting import dragin, seakr
from jaxrag.methods.iterative import adaptive_rag, flare, ircot, react
from jaxrag.methods.iterative.adaptive_rag import Classified, OneStrategy
from jaxrag.methods.r3 import r3
from jaxrag.methods.retrieve_and_read import Config
from jaxrag.methods.self_rag import reflection, self_rag
from jaxrag.steps.candidates import DualPath, FixedMix, OnePath
from jaxrag.steps.episode import answer_question
from jaxrag.steps.gates import JudgeGate
from jaxrag.steps.passage_selectors import Rerank, Top
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool, needs_of
from jaxrag.types import InputError, Passage
from tests.methods.inspecting.looking import Transparent
from tests.methods.iterative.turns import WordIndex
from tests.scripted import ScriptedModel, ScriptedReranker, settings_of, tools_of
from tests.steps.closed_questions import CHOICE, CLAIM, LABELS, OPEN, YES_NO
from tests.words import WORDS_AND_BREAKS, word_tokenizer

SMALL, BASELINES = Reader(prompts="small"), Reader(prompts="baselines_small")
ONE, TOP = OnePath(n=2), Top(k=1)
ITERATIVE, LOOKS = Reader(prompts="iterative_small"), Reader(prompts="inspecting_small")
METHODS: dict[str, Any] = {
    "no_retrieval": Config(candidates=None, reader=SMALL),
    "standard": Config(candidates=ONE, select=TOP, reader=SMALL),
    "dual_path": Config(candidates=DualPath(n=2), select=TOP, reader=SMALL),
    "fixed_mix": Config(candidates=FixedMix(), select=TOP, reader=SMALL),
    "rerank": Config(candidates=ONE, select=Rerank(k=1), reader=SMALL),
    "judge": Config(JudgeGate(), ONE, TOP, SMALL),
    "dtr": dtr.Config(candidates=ONE, select=TOP, reader=SMALL),
    "pairs": pairs.Config(candidates=ONE, select=TOP, reader=SMALL),
    "r3": r3.Config(),
    "few_shot": few_shot.Config(BASELINES),
    "chain_of_thought": chain_of_thought.Config(BASELINES),
    "fairrag": fairrag.Config(ONE, k=1, reader=BASELINES),
    "rankrag": rankrag.Config(ONE, k=1, reader=BASELINES),
    "cor": cor.Config(ONE, k=1, reader=BASELINES),
    "replug": replug.Config(ONE, reader=SMALL),
    "flare": flare.Config(candidates=ONE, select=TOP, reader=BASELINES),
    "ircot": ircot.Config(reader=ITERATIVE),
    "react": react.Config(reader=ITERATIVE),
    "adaptive": adaptive_rag.Config(
        complexity=Classified(settings_of(ScriptedModel)),
        candidates=ONE, select=TOP, reader=ITERATIVE,
    ),
    "multi": adaptive_rag.Config(
        complexity=OneStrategy("multi"), candidates=ONE, select=TOP, reader=ITERATIVE
    ),
    "self_rag": self_rag.Config(candidates=ONE, select=Top(k=2), retrieve="always"),
    "self_rag_prompted": self_rag.Config(
        mode="prompted", candidates=ONE, select=Top(k=2), retrieve="always",
        reader=Reader(prompts="self_rag_small"),
    ),
    "dragin": dragin.Config(candidates=ONE, select=TOP, reader=LOOKS),
    "seakr": seakr.Config(samples=2, reader=LOOKS),
    "rrr": rrr.Config(reader=Reader(prompts="errr_small")),
    "errr": errr.Config(reader=Reader(prompts="errr_small")),
    "ars": ars.Config(rewriter=Rewriter(n=2), order=Generated(), count=Fixed(2), reader=SMALL),
}  # fmt: skip
SAID = {"o": "Ada", "f": "false", "m": "B", "q": "Yes", "l": "refutes"}
QUESTIONS = {one.id: one for one in (OPEN, CLAIM, CHOICE, YES_NO, LABELS)}
ANSWERS = {"o": "Ada", "f": "false", "m": "a rose", "q": "yes", "l": "REFUTES"}
TOKENS = "|".join(map(re.escape, reflection.TOKENS)) + f"|{WORDS_AND_BREAKS}"


def model_of(name: str, said: str) -> Any:
    """Answers ``said`` as the method's prompts ask for it, and finds it the likeliest."""

    def reply(shown: str, settings: Any) -> tuple[str, list[float], str]:
        last, text = shown.rpartition("\n\n")[2], f" {said}"
        if "Thought" in last:
            action = f"Finish[{said}]" if "Observation" in last else "Search[it red ice]"
            text = f" I see.\nAction: {action}"
        elif name in ("chain_of_thought", "flare", "dragin", "seakr") or "Reasoning" in last:
            text = f" So the answer is: {said}."
        return text, [0.5] * len(text), "end"

    if name in ("dragin", "seakr"):
        return Transparent(lambda shown, seed: reply(shown, {})[0])
    tokenizer = word_tokenizer(TOKENS, chat=False)
    likes = lambda _, text: -0.5 if text.strip().lower() == said.lower() else -1.0  # noqa: E731
    written: Any = reply
    return ScriptedModel(written, likes, last_turn=True, tokenizer=tokenizer)


def answered(name: str, question: Any, model: Any, index: Any, store: Any = None) -> Any:
    method, needs, judge = METHODS[name], needs_of(METHODS[name]), model_of("judge", "C")
    inside = model if name in ("dragin", "seakr") else None
    reranker = ScriptedReranker(lambda *_: 1.0)
    helpers = dict.fromkeys(needs.helpers, LanguageModelTool(judge))
    tools = tools_of(model, index, needs=needs, reranker=reranker, helpers=helpers, inside=inside)
    start = (question.id, lambda: answer_question(method, question, tools))
    (found,) = Scheduler(store or Store(None)).run([start])
    return found


TEXTS = {"p": "who is it red", "s": "ice is so warm"}
ROWS = [Passage(name, "", text) for name, text in TEXTS.items()]


@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize("name", METHODS)
def test_a_question_of_each_kind(name: str, kind: str) -> None:
    question, index, store = QUESTIONS[kind], WordIndex(*ROWS), Store(None)
    model, needs = model_of(name, SAID[kind]), needs_of(METHODS[name])
    found = answered(name, question, model, index, store)
    if (name, kind) == ("chain_of_thought", "f"):
        with pytest.raises(InputError, match="Question f is a statement to check"):
            raise found.error
        return
    assert found.error is None, found.error
    trace, shown = found.value.trace, [*model.prompts, *(prompt for prompt, _ in model.scored)]
    assert found.value.text == ANSWERS[kind] and trace["answer"]["text"] == ANSWERS[kind]
    task = "multiple_choice" if question is CHOICE else question.task
    assert trace["task"] == task and json.dumps(trace, allow_nan=False)
    assert not trace["answer"].get("junk")
    if question.choices:  # shown, and not searched for
        assert any(all(choice in one for choice in question.choices) for one in shown)
    searches = trace.get("searches", [])
    assert not any(choice in one["query"] for one in searches for choice in question.choices)
    # what is paid for is recorded, and what is used is asked for
    assert found.cost.get("searches", 0) == len(searches)
    assert found.cost.get("llm_calls", 0) >= len(model.prompts)  # the same prompt is asked once
    assert needs.search >= bool(index.asked) and needs.scores >= bool(model.scored)
    seen = {row for one in searches for row in one["ids"]}
    assert bool(index.asked) >= bool(seen)
    kept = trace.get("selected", {}).get("ids", [])
    assert all(any(TEXTS[name] in one for one in shown) for name in kept)  # what is kept is read
    assert seen >= {*kept}
    # a store answers it again, without the model and the index
    asked = len(index.asked), len(shown)
    again = answered(name, question, model, index, store)
    assert again.value == found.value
    assert asked == (len(index.asked), len(model.prompts) + len(model.scored))


SEARCHING = [name for name, method in METHODS.items() if needs_of(method).search]


@pytest.mark.parametrize("name", SEARCHING)
def test_an_index_that_finds_nothing(name: str) -> None:
    found = answered(name, OPEN, model_of(name, "Ada"), WordIndex(Passage("p", "", "zebra")))
    assert found.error is None and found.value.text == "Ada"
    assert found.value.trace.get("selected", {"ids": []})["ids"] == []
