"""The baselines with the settings of their configs: runs to their end, and how often they ask."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from jaxrag.configs import baselines
from jaxrag.core.store import Store
from jaxrag.data.folder import Folder
from jaxrag.evaluation.records import read_run
from jaxrag.methods.baselines import cor
from jaxrag.methods.iterative.adaptive_rag import Classified
from jaxrag.methods.self_rag import reflection
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.runs import run as runs
from jaxrag.runs.config_file import load
from jaxrag.runs.parts import load_tools
from jaxrag.runs.run import Run, execute
from jaxrag.steps import prompts
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run
from tests.scripted import ScriptedModel, settings_of
from tests.steps.test_inspection_tool import ask
from tests.words import WORDS_AND_BREAKS, word_tokenizer


def config(name: str) -> Run:
    run = baselines.get_config(f"{name}@tiny")
    assert isinstance(run, Run)
    return run


def scripted(answer: str) -> Any:
    """A model, half sure of its answer, that reasons or acts where a prompt ends in asking so."""
    pattern = "|".join(map(re.escape, reflection.TOKENS)) + f"|{WORDS_AND_BREAKS}"
    tokenizer = word_tokenizer(pattern, chat=False)

    def reply(shown: str, settings: Any) -> tuple[str, list[float], str]:
        last, text = shown.rpartition("\n\n")[2], answer
        if "Thought" in last:
            action = "Finish[a]" if "Observation" in last else "Search[red]"
            text = f" I need it.\nAction: {action}"
        elif "Reasoning" in last:
            text = " So the answer is: a."
        return text, [0.5] * len(text), "end"

    def score(shown: str, label: str) -> float:
        return -0.25 if label == "C" else -(len(shown) * len(label) % 5 + 2) / 4

    return settings_of(lambda: ScriptedModel(reply, score, last_turn=True, tokenizer=tokenizer))


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> Run:
    return load(str(write_small_run(tmp_path_factory.mktemp("baselines"), questions=5)))


def run_on(small: Run, run: Run, **changes: Any) -> Run:
    """A config's run over small files, with scripted models."""
    method = dataclasses.replace(run.method, **changes)  # type: ignore[type-var]
    index = small.index if run.index else None
    return dataclasses.replace(
        run, method=method, data=small.data, model=scripted(" a"), index=index, cache=small.cache
    )


TRAINED: dict[str, Any] = {"complexity": Classified(scripted(" a"))}
CALLS = {
    "few_shot": 1, "chain_of_thought": 1, "flare": 2, "fairrag": 1, "rankrag": 1, "cor": 2,
    "react": 2, "ircot": 2, "adaptive_rag": 2, "adaptive_rag_decoder": 2, "adaptive_rag_none": 1,
    "adaptive_rag_single": 1, "adaptive_rag_multi": 2,
}  # fmt: skip
"""Calls of the language model for a question that it answers as soon as it may."""
RUNS = [
    name
    for group in (baselines.ARS_BASELINES, baselines.ITERATIVE)
    for name in group
    if name not in ("dragin", "seakr")
]
WITHOUT_SEARCH = ("few_shot", "chain_of_thought", "adaptive_rag_none")


NOTHING = [
    {"id": "nothing", "question": "\u79d8\u9c81?", "answers": ["a"]},
    {"id": "unanswered", "question": "R"},
]


@pytest.fixture(scope="module")
def lost(small: Run, tmp_path_factory: Any) -> Run:
    """A run over BM25, which finds nothing for its questions; accents do not count."""
    here = tmp_path_factory.mktemp("lost")
    lines = {"queries": NOTHING, "corpus": [{"id": "p", "text": "the blue house"}]}
    for name, rows in lines.items():
        (here / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    gold = [{"query_id": "nothing", "passage_ids": ["p", "q"]}]
    (here / "qrels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in gold))
    (here / "searched").mkdir()
    (here / "corpus.jsonl").rename(here / "searched" / "corpus.jsonl")
    data = Folder(str(here), corpus=str(here / "searched"))
    return dataclasses.replace(small, data=data, index=Bm25(), normalization="unicode")


def test_a_baseline_runs_where_bm25_finds_nothing(lost: Run, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("bm25s")
    run: Any = dataclasses.replace(run_on(lost, config("ircot")), normalization="unicode")
    passages = run.data.load(Path(run.cache)).passages
    assert run.index.status(passages, Path(run.cache)).state == "not built yet"
    found = execute(dataclasses.replace(run, model=scripted(" \u00e1")), tmp_path / "run")
    assert run.index.status(passages, Path(run.cache)).state == "built"
    assert found["answered"] == 2 and found["errors"] == 0
    records = {one["question_id"]: one for one in read_run(tmp_path / "run").records}
    assert records["nothing"]["trace"].get("selected", {}).get("ids", []) == []
    mean = found["means"]["exact_match"]
    assert (mean["mean"], mean["n"]) == (1.0, 1)  # of the one with a gold answer
    assert read_run(tmp_path / "run").config["normalization"] == "unicode"
    log = capsys.readouterr().err
    for note in ("1 of 2 questions of", "1 of 2 gold passages of"):
        assert note in log
    assert found["alarms"]["questions"]["nothing_found"] == 2


@pytest.mark.parametrize("name", RUNS)
def test_each_baseline_runs_end_to_end(name: str, small: Run, tmp_path: Path) -> None:
    trained = TRAINED if name in ("adaptive_rag", "adaptive_rag_decoder") else {}
    run = run_on(small, config(name), **trained)
    if name == "flare":
        run = dataclasses.replace(run, model=scripted(" So the answer is a."))
    found = execute(run, tmp_path / "run")
    assert found["answered"] == 5 and found["errors"] == 0
    assert found["means"]["exact_match"]["mean"] == 1.0
    searches = name not in WITHOUT_SEARCH
    assert found["means"]["retriever_activation"]["mean"] == float(searches)
    assert found["means"]["llm_calls"]["mean"] == CALLS[name]
    for record in read_run(tmp_path / "run").records:
        assert record["prediction"] == "a"
        assert len(record["trace"].get("selected", {}).get("ids", [])) == int(searches)
        if trained:
            assert record["trace"]["complexity"]["label"] == "C"
    assert execute(run, tmp_path / "run") == found  # nothing is left to ask


@pytest.mark.parametrize("name", ["self_rag", "self_rag_prompted"])
@pytest.mark.parametrize("form", ["short", "long"])
def test_self_rag_runs_end_to_end(name: str, form: str, small: Run, tmp_path: Path) -> None:
    run = run_on(small, config(name), form=form, retrieve="always")
    found = execute(run, tmp_path / "run")
    assert found["answered"] == 5 and found["errors"] == 0
    assert found["means"]["exact_match"]["mean"] == 1.0
    assert found["means"]["retriever_activation"]["mean"] == 1.0
    kept = read_run(tmp_path / "run")
    assert kept.config["method"]["name"] == run.name
    for record in kept.records:
        trace, cost = record["trace"], record["cost"]
        prompted = name == "self_rag_prompted"
        assert trace["mode"] == ("prompted emulation" if prompted else "checkpoint")
        assert len(trace["selected"]["ids"]) == 1 and len(trace["searches"][0]["ids"]) == 5
        assert cost["llm_calls"] == 5 and cost["searches"] == 1
        # of each passage: relevance, support, utility
        assert cost["llm_scores"] == 5 * (2 + 3 + 5)
        scores = [one["total"] for one in trace["steps"][0]["beams"][0]["candidates"]]
        assert trace["chosen"]["score"] == max(scores)


def test_the_local_engine_is_inspected(small: Run) -> None:
    """The methods that do so are tried by tests/methods/test_contract.py."""
    method = dataclasses.replace(small, method=config("dragin").method)
    tools, _ = load_tools(method, Path(small.cache))
    looked, middle, last = ask(tools.inspection, Store(None)).value
    assert looked.attention.shape == (4, 11) and middle.tokens == last.tokens == 5


def test_an_engine_that_cannot_be_inspected_is_refused(small: Run, tmp_path: Path) -> None:
    run = run_on(small, config("dragin"))
    with pytest.raises(InputError, match=r"needs the model's attentions and hidden states.*local"):
        runs.load(dataclasses.replace(run, cache=str(tmp_path / "cache")))


@pytest.mark.parametrize("name", ["baselines", "iterative", "inspecting"])
def test_prompts_for_both_sizes_have_the_same_roles(name: str) -> None:
    small, whole = prompts.load(f"{name}_small"), prompts.load(name)
    shared = small.roles.keys() & whole.roles.keys() - {"complexity"}
    assert len(shared) >= 5
    assert not any(small.roles[role].chat for role in shared)
    assert all(whole.roles[role].chat for role in shared)
    if "relevance" in shared:
        assert len(small.roles["relevance"].words) == len(whole.roles["relevance"].words) == 2


def test_rankings_in_demonstrations_are_permutations() -> None:
    for user, reply in prompts.load("baselines_small").role("rank_ids").demonstrations:
        shown = len(re.findall(r"(?m)^\[\d+\] ", user))
        assert shown == 3 and cor.read_order(reply, shown)[1:] == (0, 0, 0)


@pytest.mark.parametrize("name, base", [("baselines_small", "small"), ("baselines", "ars")])
def test_baselines_have_the_reading_prompts_of_ars_rag(name: str, base: str) -> None:
    ours, theirs = prompts.load(name), prompts.load(base)
    for role in ("context", "yes_no", "multiple_choice"):
        assert ours.roles[role] == theirs.roles[role], role
    assert (ours.passage, ours.joiner) == (theirs.passage, theirs.joiner)


def test_the_classifier_reads_the_same_prompt_for_both_sizes() -> None:
    for name in ("iterative_small", "iterative"):
        role = prompts.load(name).role("complexity")
        assert role.words == ("A", "B", "C") and not role.chat
        assert "\nObservation" in prompts.load(name).role("react").stop
