"""The baselines with the settings of their configs: how often they ask, and runs to their end."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from jaxrag.configs import baselines
from jaxrag.data.folder import Folder
from jaxrag.evaluation.records import read_run
from jaxrag.methods.baselines import cor
from jaxrag.methods.inspecting import dragin, seakr
from jaxrag.methods.iterative.adaptive_rag import Classified
from jaxrag.methods.self_rag import reflection
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.runs import run as runs
from jaxrag.runs.config_file import load
from jaxrag.runs.run import Run, execute
from jaxrag.steps import prompts
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError, Question
from tests.experiments.small_run import write_small_run
from tests.retrieval.fakes import FakePassages
from tests.scripted import ScriptedModel, settings_of
from tests.steps.simulated_tools import bounds
from tests.words import WORDS_AND_BREAKS, word_tokenizer

QUESTIONS = {
    "open": [Question(f"q{i}", f"Where is {i}?", ("there",)) for i in range(6)],
    "yes_no": [Question(f"q{i}", f"is it {i}", ("yes",), task="yes_no") for i in range(6)],
    "multiple_choice": [
        Question(f"q{i}", f"Where is {i}?", ("there",), ("here", "there")) for i in range(6)
    ],
}


def config(name: str) -> Run:
    run = baselines.get_config(f"{name}@tiny")
    assert isinstance(run, Run)
    return run


def calls(name: str, task: str = "open", **reader: Any) -> dict[str, tuple[int, int]]:
    run, passages = config(name), FakePassages(40)
    changed = dataclasses.replace(run.method.reader, **reader)
    method = dataclasses.replace(run.method, reader=changed)  # type: ignore[type-var]
    found = bounds(
        method,
        QUESTIONS[task],
        passages if run.index else None,  # type: ignore[arg-type]
    )
    return {kind.kind: (kind.least, kind.most) for kind in found}


ONE = {"llm_calls": (1, 1)}
CALLS = {
    "few_shot": ONE,
    "chain_of_thought": ONE,
    "fairrag": {**ONE, "searches": (1, 1)},
    "rankrag": {**ONE, "searches": (1, 1), "llm_scores": (5, 5)},
    "cor": {"llm_calls": (2, 2), "searches": (1, 1)},
}


@pytest.mark.parametrize("task", QUESTIONS)
@pytest.mark.parametrize("name", CALLS)
def test_call_counts_of_methods_without_a_loop(name: str, task: str) -> None:
    assert calls(name, task, by="text") == CALLS[name]


@pytest.mark.parametrize("task, scores", [("open", None), ("yes_no", 4), ("multiple_choice", 4)])
def test_a_small_model_answers_closed_questions_by_its_options(
    task: str, scores: int | None
) -> None:
    # two options, each with and without the question
    found = calls("few_shot", task)
    assert found == (ONE if scores is None else {"llm_scores": (scores, scores)})


@pytest.mark.parametrize("task", QUESTIONS)
def test_flare_calls_once_or_twice_a_sentence(task: str) -> None:
    found, most = calls("flare", task), 4
    assert found["searches"] == (0, most)
    assert found["llm_calls"][0] <= 2 and found["llm_calls"][1] == 2 * most


def test_call_counts_of_iterative_methods() -> None:
    assert calls("adaptive_rag_none") == {"llm_calls": (1, 1)}
    assert calls("adaptive_rag_single") == {"llm_calls": (1, 1), "searches": (1, 1)}
    # a sentence that states the answer at once, or three that do not; the reader
    loop = calls("ircot")
    assert loop["llm_calls"] == (2, 4) and loop["searches"] == (1, 4)
    assert loop == calls("adaptive_rag_multi")
    # ReAct asks twice where no action comes, and for the answer at the end
    least, most = calls("react")["llm_calls"]
    assert 2 <= least <= most <= 2 * 4 + 1


def test_call_counts_of_methods_that_inspect_the_model() -> None:
    # at most 3 retrievals; every text but the last is looked into
    found = calls("dragin")
    assert found["searches"] == (0, 3) and found["llm_calls"] == (1, 4)
    # 3 samples and the greedy text: a step, its 2 passages, and two readings, each asked again
    found = calls("seakr")
    assert found["searches"][0] == 0 and found["searches"][1] <= 2
    assert found["llm_calls"][0] >= 12 and found["llm_calls"][1] <= 3 * 4 + 2 * 8 + 10


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


@pytest.mark.parametrize("name", [one for one in RUNS if one not in WITHOUT_SEARCH])
def test_each_baseline_runs_where_bm25_finds_nothing(
    name: str, lost: Run, tmp_path: Path, capsys: Any
) -> None:
    pytest.importorskip("bm25s")
    trained = TRAINED if config(name).needs.helpers else {}
    said = " So the answer is \u00e1." if name == "flare" else " \u00e1"
    run = dataclasses.replace(run_on(lost, config(name), **trained), normalization="unicode")
    found = execute(dataclasses.replace(run, model=scripted(said)), tmp_path / "run")
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


INSPECTING = """
[complete_direct]
chat = false
user = "Q: {question}\\nA:{so_far}"

[complete]
chat = false
user = "{passages}\\nQ: {question}\\nA:{so_far}"

[continue_direct]
chat = false
user = "Q: {question}\\nA:{so_far}"
stop = [". "]

[continue]
chat = false
user = "{passages}\\nQ: {question}\\nA:{so_far}"
stop = [". "]

[direct]
chat = false
user = "Q: {question}\\nA:"

[context]
chat = false
user = "{passages}\\nQ: {question}\\nA:"
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dragin", "seakr"])
def test_methods_that_inspect_the_model_run_end_to_end(
    name: str, small: Run, tmp_path: Path
) -> None:
    (tmp_path / "prompts.toml").write_text(INSPECTING)
    reader = Reader(prompts=str(tmp_path / "prompts.toml"))
    method = {
        "dragin": dragin.Config(
            theta=1e-3, candidates=OnePath(n=2), select=Top(k=2), reader=reader, tokens=12
        ),
        "seakr": seakr.Config(
            threshold=-9.0, samples=3, k=2, max_steps=2, max_passages=1, reader=reader, tokens=8
        ),
    }[name]
    execute(dataclasses.replace(small, method=method), tmp_path / "run")
    records = read_run(tmp_path / "run").records
    assert len(records) == 5 and all("error" not in record for record in records)
    assert all(record["trace"]["gate"]["name"] == name for record in records)
    assert sum(record["cost"]["llm_scores"] for record in records) >= 5


def test_an_engine_that_cannot_be_inspected_is_refused(small: Run, tmp_path: Path) -> None:
    run = run_on(small, config("dragin"))
    with pytest.raises(InputError, match=r"needs the model's attentions and hidden states.*local"):
        runs.load(dataclasses.replace(run, cache=str(tmp_path / "cache")))


@pytest.mark.parametrize("name, base", [("baselines_small", "small"), ("baselines", "ars")])
def test_baselines_have_the_reading_prompts_of_ars_rag(name: str, base: str) -> None:
    ours, theirs = prompts.load(name), prompts.load(base)
    for role in ("context", "yes_no", "multiple_choice"):
        assert ours.roles[role] == theirs.roles[role], role
    assert (ours.passage, ours.joiner) == (theirs.passage, theirs.joiner)


@pytest.mark.parametrize("name", ["baselines", "iterative", "inspecting"])
def test_prompts_for_both_sizes_have_the_same_roles(name: str) -> None:
    small, whole = prompts.load(f"{name}_small"), prompts.load(name)
    shared = small.roles.keys() & whole.roles.keys() - {"complexity"}
    assert len(shared) >= 5
    assert not any(small.roles[role].chat for role in shared)
    assert all(whole.roles[role].chat for role in shared)
    if "relevance" in shared:
        assert len(small.roles["relevance"].words) == len(whole.roles["relevance"].words) == 2


def test_the_classifier_reads_the_same_prompt_for_both_sizes() -> None:
    for name in ("iterative_small", "iterative"):
        role = prompts.load(name).role("complexity")
        assert role.words == ("A", "B", "C") and not role.chat
        assert "\nObservation" in prompts.load(name).role("react").stop


def test_small_prompts_are_short() -> None:
    layout = prompts.load("iterative_small")
    fields = {"question": "", "scratchpad": "", "step": "", "thought": "", "so_far": ""}
    for role in ("react", "react_action", "reason"):
        assert len(str(layout.role(role).prompt(**fields, passages="")).split()) < 260


def test_rankings_in_demonstrations_are_permutations() -> None:
    for user, reply in prompts.load("baselines_small").role("rank_ids").demonstrations:
        shown = len(re.findall(r"(?m)^\[\d+\] ", user))
        assert shown == 3 and cor.read_order(reply, shown)[1:] == (0, 0, 0)
