"""Every baseline's config builds on every variant, has bounds, and runs to its end."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from configs.ars import DATA
from experiments.configuration import load
from jaxrag.evaluation.records import read_run
from jaxrag.methods.baselines import cor
from jaxrag.runs.calls import bounds
from jaxrag.runs.run import Run, execute
from jaxrag.steps import prompts
from jaxrag.types import InputError, Question
from tests.experiments.small_run import write_small_run
from tests.retrieval.fakes import FakePassages
from tests.scripted import ScriptedModel, settings_of
from tests.words import WORDS_AND_BREAKS, WordTokenizer

NAMES = ["few_shot", "chain_of_thought", "flare", "fairrag", "rankrag", "cor"]
SEARCH = NAMES[2:]


def config(name: str, where: str = "tiny") -> Run:
    return load(f"configs/ars_baselines.py:{name}@{where}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", [*DATA, *(f"paper-{name}" for name in ("boolq", "hotpotqa"))])
def test_every_baseline_has_every_variant(name: str, where: str) -> None:
    run = config(name, where)
    assert run.name == name
    assert (run.index is not None) == (name in SEARCH)
    paper = where.startswith("paper-")
    assert run.method.reader.prompts == ("baselines" if paper else "baselines_small")


def test_an_unknown_baseline_lists_the_known() -> None:
    with pytest.raises(InputError, match=r"no baseline 'self_rag'; there are few_shot.*BASELINE@"):
        config("self_rag")


QUESTIONS = {
    "open": [Question(f"q{i}", f"Where is {i}?", ("there",)) for i in range(6)],
    "yes_no": [Question(f"q{i}", f"is it {i}", ("yes",), task="yes_no") for i in range(6)],
    "multiple_choice": [
        Question(f"q{i}", f"Where is {i}?", ("there",), ("here", "there")) for i in range(6)
    ],
}
ONE = {"llm_calls": (1, 1)}
CALLS = {
    "few_shot": ONE,
    "chain_of_thought": ONE,
    "fairrag": {**ONE, "searches": (1, 1)},
    "rankrag": {**ONE, "searches": (1, 1), "llm_scores": (5, 5)},
    "cor": {"llm_calls": (2, 2), "searches": (1, 1)},
}


def calls(name: str, task: str, **changes: str) -> dict[str, tuple[int, int]]:
    run, passages = config(name), FakePassages(40)
    method = dataclasses.replace(config(name).method, **changes)
    found = bounds(
        method,
        QUESTIONS[task],
        passages if run.index else None,  # type: ignore[arg-type]
    )
    return {kind.kind: (kind.least, kind.most) for kind in found}


@pytest.mark.parametrize("task", QUESTIONS)
@pytest.mark.parametrize("name", CALLS)
def test_calls_of_baselines(name: str, task: str) -> None:
    by = {} if name == "chain_of_thought" else {"by": "text"}
    assert calls(name, task, **by) == CALLS[name]


@pytest.mark.parametrize("task, scores", [("open", None), ("yes_no", 4), ("multiple_choice", 4)])
def test_a_small_model_answers_closed_questions_by_its_options(
    task: str, scores: int | None
) -> None:
    # two options, each with and without the question
    found = calls("few_shot", task)
    assert found == (ONE if scores is None else {"llm_scores": (scores, scores)})


@pytest.mark.parametrize("task", QUESTIONS)
def test_flare_calls_once_or_twice_a_sentence(task: str) -> None:
    found, most = calls("flare", task), config("flare").method.max_sentences
    assert found["searches"] == (0, most)
    assert found["llm_calls"][0] <= 2 and found["llm_calls"][1] == 2 * most


def says_a() -> ScriptedModel:
    """Is half sure of one sentence."""

    def said(prompt: str, settings: Any) -> tuple[str, list[float], str]:
        if settings["max_new_tokens"] > 20:
            return " So the answer is a.", [0.5] * 6, "end"
        return " a", [0.5], "stop"

    tokenizer = WordTokenizer(WORDS_AND_BREAKS, chat_template="")
    return ScriptedModel(said, lambda prompt, text: -len(prompt) % 7, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> Run:
    return load(str(write_small_run(tmp_path_factory.mktemp("baselines"), questions=5)))


@pytest.mark.parametrize("name", NAMES)
def test_each_runs_to_its_end(name: str, small: Run, tmp_path: Path) -> None:
    run = dataclasses.replace(
        config(name), data=small.data, model=settings_of(says_a), cache=small.cache, reranker=None
    )
    if run.index:
        run = dataclasses.replace(run, index=small.index)
    found = execute(run, tmp_path / "run")
    assert found["answered"] == 5 and found["errors"] == 0
    assert found["means"]["exact_match"]["mean"] == 1.0
    assert found["means"]["retriever_activation"]["mean"] == (1.0 if name in SEARCH else 0.0)
    for record in read_run(tmp_path / "run").records:
        assert record["prediction"] == "a"
        kept = record["trace"].get("selected", {}).get("ids", [])
        assert len(kept) == (1 if name in SEARCH else 0)


@pytest.mark.parametrize("name, base", [("baselines_small", "small"), ("baselines", "ars")])
def test_baselines_read_as_ars_rag_does(name: str, base: str) -> None:
    ours, theirs = prompts.load(name), prompts.load(base)
    for role in ("context", "yes_no", "multiple_choice"):
        assert ours.roles[role] == theirs.roles[role], role
    assert (ours.passage, ours.joiner) == (theirs.passage, theirs.joiner)


def test_both_sets_have_the_same_roles() -> None:
    small, whole = prompts.load("baselines_small"), prompts.load("baselines")
    shared = small.roles.keys() & whole.roles.keys()
    assert len(shared) >= 14
    assert not any(small.roles[role].chat for role in shared)
    assert all(whole.roles[role].chat for role in shared)
    assert len(small.roles["relevance"].words) == len(whole.roles["relevance"].words) == 2


def test_rankings_of_the_demonstrations_are_whole() -> None:
    for user, reply in prompts.load("baselines_small").role("rank_ids").demonstrations:
        shown = len(re.findall(r"(?m)^\[\d+\] ", user))
        assert shown == 3 and cor.read_order(reply, shown)[1:] == (0, 0, 0)
