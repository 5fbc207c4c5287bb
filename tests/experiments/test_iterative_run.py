"""Configs of the iterative methods: every variant, bounds of calls, and small runs to their end."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from configs.iterative import DATA, METHODS
from experiments.configuration import load
from jaxrag.data.draw import Draw
from jaxrag.engines.local.engine import Local
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.evaluation.records import read_run
from jaxrag.methods.iterative import adaptive_labels
from jaxrag.runs.calls import bounds
from jaxrag.runs.run import Run, execute
from jaxrag.steps import prompts
from jaxrag.types import InputError, Question
from tests.experiments.small_run import write_small_run
from tests.retrieval.fakes import FakePassages
from tests.scripted import ScriptedModel, settings_of

SEARCH = ("react", "ircot", "single", "multi", "adaptive_rag")


def config(name: str, where: str = "tiny") -> Run:
    return load(f"configs/iterative.py:{name}@{where}")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("where", [*DATA, "paper-popqa", "paper-hotpotqa"])
def test_every_method_has_every_variant(name: str, where: str) -> None:
    run = config(name, where)
    assert run.name == name
    assert run.index is not None
    assert list(run.method.needs.helpers) == ["classifier"] * (name == "adaptive_rag")
    assert isinstance(run.data, Draw) and run.data.part == "test"
    paper = where.startswith("paper-")
    assert run.method.reader.prompts == ("iterative" if paper else "iterative_small")


@pytest.mark.parametrize("where", [*DATA, "paper-hotpotqa"])
def test_labels_are_made_of_questions_that_are_not_tested(where: str) -> None:
    run = load(f"configs/adaptive_labels.py:{where}").run
    asked = config("adaptive_rag", where).method
    assert isinstance(run.method, adaptive_labels.Config) and run.data.part == "train"
    assert dataclasses.replace(run.data, part="test") == config("ircot", where).data
    assert run.method.bias == ("multi" if where.endswith("hotpotqa") else "single")
    shared = ("candidates", "select", "loop", "answer_from", "reader", "closed_tokens", "by")
    for name in shared:
        assert getattr(run.method, name) == getattr(asked, name), name


def test_a_classifier_is_a_t5_or_a_decoder() -> None:
    run, t5 = config("adaptive_rag+decoder", "popqa"), config("adaptive_rag", "popqa").method
    assert t5.classifier == Seq2Seq() and run.name == "adaptive_rag+decoder"
    assert run.method == dataclasses.replace(t5, classifier=Local(""))
    with pytest.raises(InputError, match=r"no method 'ircot\+decoder'"):
        config("ircot+decoder")


def test_what_is_unknown_is_refused_with_what_is_known() -> None:
    with pytest.raises(InputError, match=r"no method 'dtr'; there are react, ircot.*METHOD@DATA"):
        config("dtr")
    with pytest.raises(InputError, match=r"no data 'x' in 'ircot@x'; there are tiny, factbook"):
        config("ircot", "x")


def calls(name: str, **changes: Any) -> dict[str, tuple[int, int]]:
    run, passages = config(name), FakePassages(40)
    method = dataclasses.replace(run.method, **changes)
    found = bounds(
        method,
        [Question(f"q{i}", f"Where is {i}?", ("there",)) for i in range(6)],
        passages,  # type: ignore[arg-type]
    )
    return {kind.kind: (kind.least, kind.most) for kind in found}


def test_calls() -> None:
    assert calls("none") == {"llm_calls": (1, 1)}
    assert calls("single") == {"llm_calls": (1, 1), "searches": (1, 1)}
    # a sentence that states the answer at once, or three that do not; the reader
    loop = calls("ircot")
    assert loop["llm_calls"] == (2, 4) and loop["searches"] == (1, 4) and loop == calls("multi")
    # ReAct asks twice where no action comes, and for the answer at the end
    least, most = calls("react")["llm_calls"]
    assert 2 <= least <= most <= 2 * 4 + 1


def says_a() -> ScriptedModel:
    """Takes the steps that the prompt's last lines ask for."""

    def said(shown: str, settings: Any) -> str:
        last = shown.rpartition("\n\n")[2]
        if "Thought" in last:
            action = "Finish[a]" if "Observation" in last else "Search[red]"
            return f" I need it.\nAction: {action}"
        return " So the answer is: a." if "Reasoning" in last else " a"

    def scores(prompt: str, label: str) -> float:
        return -1.0 if label == "C" else -2.0

    return ScriptedModel(said, scores, last_turn=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> Run:
    return load(str(write_small_run(tmp_path_factory.mktemp("iterative"), questions=4)))


@pytest.mark.parametrize("name", METHODS)
def test_each_runs_to_its_end(name: str, small: Run, tmp_path: Path) -> None:
    run = config(name)
    method = run.method
    if name == "adaptive_rag":
        method = dataclasses.replace(method, classifier=settings_of(says_a))
    run = dataclasses.replace(
        run,
        method=method,
        data=small.data,
        model=settings_of(says_a),
        cache=small.cache,
        index=small.index,
    )
    found = execute(run, tmp_path / "run")
    assert found["answered"] == 4 and found["errors"] == 0
    assert found["means"]["exact_match"]["mean"] == 1.0
    assert found["means"]["retriever_activation"]["mean"] == float(name in SEARCH)
    for record in read_run(tmp_path / "run").records:
        assert record["prediction"] == "a"
        assert len(record["trace"].get("selected", {}).get("ids", [])) == int(name in SEARCH)
        if name == "adaptive_rag":
            assert record["trace"]["complexity"]["label"] == "C"
    again = execute(run, tmp_path / "run")  # nothing is left to ask
    assert again == found


def test_both_sets_of_prompts_have_the_same_roles() -> None:
    small, whole = prompts.load("iterative_small"), prompts.load("iterative")
    for role in ("react", "react_action", "reason"):
        assert whole.role(role).chat and not small.role(role).chat
    for layout in (small, whole):
        assert layout.role("complexity").words == ("A", "B", "C")
        assert not layout.role("complexity").chat
        assert "\nObservation" in layout.role("react").stop


def test_small_prompts_leave_room() -> None:
    layout = prompts.load("iterative_small")
    fields = {"question": "", "scratchpad": "", "step": "", "thought": "", "so_far": ""}
    for role in ("react", "react_action", "reason"):
        assert len(str(layout.role(role).prompt(**fields, passages="")).split()) < 260
