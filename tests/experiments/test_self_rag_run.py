"""Self-RAG's configs: every variant builds, both modes run to their end, named as they are."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from configs.self_rag import DATA, METHODS
from experiments.configuration import load
from jaxrag.evaluation.records import read_run
from jaxrag.runs.run import Run, execute
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run
from tests.methods.self_rag.reflecting import TOKENIZER
from tests.scripted import ScriptedModel, settings_of


def config(variant: str) -> Run:
    return load(f"configs/self_rag.py:{variant}")


@pytest.mark.parametrize("mode", METHODS)
@pytest.mark.parametrize("data", [*DATA, *(f"paper-{name}" for name in ("popqa", "hotpotqa"))])
def test_every_variant(mode: str, data: str) -> None:
    run = config(f"{mode}@{data}")
    assert run.name == ("self_rag (prompted)" if mode == "prompted" else "self_rag")
    assert run.method.mode == mode and run.data.part == "test"
    sets = {"prompted": "self_rag_small", "checkpoint": "self_rag_checkpoint"}
    if data.startswith("paper-"):
        sets["prompted"] = "self_rag"
    assert run.method.reader.prompts == sets[mode]


@pytest.mark.parametrize(
    "variant, said",
    [("tuned@tiny", "no mode 'tuned'.*prompted, checkpoint"), ("prompted@x", "no data 'x'.*tiny")],
)
def test_unknown_variants_list_the_known(variant: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        config(variant)


def says_a() -> ScriptedModel:
    """Says "a", and prefers the passage whose title it likes; judgements are a draw each."""
    return ScriptedModel(
        (" a", [0.5], "end"), lambda p, c: -(len(p) * len(c) % 5) / 4, tokenizer=TOKENIZER
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> Run:
    return load(str(write_small_run(tmp_path_factory.mktemp("self_rag"), questions=5)))


@pytest.mark.parametrize("mode", METHODS)
@pytest.mark.parametrize("form", ["short", "long"])
def test_each_runs_to_its_end(mode: str, form: str, small: Run, tmp_path: Path) -> None:
    run = config(f"{mode}@tiny")
    method = dataclasses.replace(run.method, form=form, retrieve="always")
    parts = {"data": small.data, "index": small.index, "cache": small.cache}
    run = dataclasses.replace(run, method=method, model=settings_of(says_a), **parts)
    found = execute(run, tmp_path / "run")
    assert found["answered"] == 5 and found["errors"] == 0
    assert found["means"]["exact_match"]["mean"] == 1.0
    assert found["means"]["retriever_activation"]["mean"] == 1.0
    kept = read_run(tmp_path / "run")
    assert kept.config["method"]["name"] == run.name
    for record in kept.records:
        trace, cost = record["trace"], record["cost"]
        assert trace["mode"] == ("prompted emulation" if mode == "prompted" else "checkpoint")
        assert len(trace["selected"]["ids"]) == 1 and len(trace["searches"][0]["ids"]) == 5
        assert cost["llm_calls"] == 5 and cost["searches"] == 1
        # of each passage: relevance, support, utility
        assert cost["llm_scores"] == 5 * (2 + 3 + 5)
        scores = [one["total"] for one in trace["steps"][0]["beams"][0]["candidates"]]
        assert trace["chosen"]["score"] == max(scores)
