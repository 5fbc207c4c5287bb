"""DRAGIN's and SeaKR's configs: every variant, bounds, a run, and engines without an inside."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from configs import errr
from configs.errr import DATA
from experiments.configuration import load
from jaxrag.evaluation.records import read_run
from jaxrag.methods.inspecting import dragin, seakr
from jaxrag.runs.calls import bounds
from jaxrag.runs.run import Run, execute, prepare
from jaxrag.steps import prompts
from jaxrag.steps.asking import Reader
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.types import InputError, Question
from tests.experiments.small_run import write_small_run
from tests.retrieval.fakes import FakePassages

NAMES = ["dragin", "seakr"]
QUESTIONS = [Question(f"q{i}", f"Where is {i}?", ("there",)) for i in range(6)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", [*DATA, "paper-hotpotqa", "paper-popqa"])
def test_every_method_has_every_variant(name: str, where: str) -> None:
    run = load(f"configs/inspecting.py:{name}@{where}")
    assert run.name == name and run.index is not None
    assert run.method.needs.inspection
    # the same questions as all other methods answer
    assert run.data == errr.get_config(f"direct@{where}").data
    layout = prompts.load(run.method.reader.prompts)
    for role in ("complete", "complete_direct", "continue", "continue_direct", "context"):
        assert layout.role(role).chat is where.startswith("paper-")


@pytest.mark.parametrize("variant", ["dragin@factbook+vllm", "seakr+server@tiny"])
def test_other_engines_are_refused(variant: str) -> None:
    with pytest.raises(InputError, match="look into the model: the local engine alone"):
        load(f"configs/inspecting.py:{variant}")


@pytest.mark.parametrize("variant, said", [("flare@tiny", "no method 'flare'; there are dragin"),
                                           ("dragin@nowhere", "no data 'nowhere'")])  # fmt: skip
def test_unknown_variants_are_refused(variant: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(f"configs/inspecting.py:{variant}")


def calls(name: str) -> dict[str, tuple[int, int]]:
    run = load(f"configs/inspecting.py:{name}@tiny")
    found = bounds(
        run.method,
        QUESTIONS,
        FakePassages(40),  # type: ignore[arg-type]
    )
    return {kind.kind: (kind.least, kind.most) for kind in found}


def test_calls_of_dragin() -> None:
    # at most 3 retrievals; every text but the last is looked into
    found = calls("dragin")
    assert found["searches"] == (0, 3) and found["llm_calls"] == (1, 4)


def test_calls_of_seakr() -> None:
    found = calls("seakr")
    # 3 samples and the greedy text: a step, its 2 passages, and two readings, each asked again
    assert found["searches"][0] == 0 and found["searches"][1] <= 2
    assert found["llm_calls"][0] >= 12 and found["llm_calls"][1] <= 3 * 4 + 2 * 8 + 10


PROMPTS = """
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


def small_run(here: Path, method: Any) -> Run:
    run = load(str(write_small_run(here, questions=4)))
    (here / "prompts.toml").write_text(PROMPTS)
    return dataclasses.replace(run, method=method, cache=str(here / "cache"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_small_run_to_its_end(name: str, tmp_path: Path) -> None:
    reader = Reader(prompts=str(tmp_path / "prompts.toml"))
    method = {
        "dragin": dragin.Config(
            theta=1e-3, candidates=OnePath(n=2), select=Top(k=2), reader=reader, tokens=12
        ),
        "seakr": seakr.Config(
            threshold=-9.0, samples=3, k=2, max_steps=2, max_passages=1, reader=reader, tokens=8
        ),
    }[name]
    execute(small_run(tmp_path, method), tmp_path / "run")
    records = read_run(tmp_path / "run").records
    assert len(records) == 4 and all("error" not in record for record in records)
    assert all(record["trace"]["gate"]["name"] == name for record in records)
    assert sum(record["cost"]["llm_scores"] for record in records) >= 4


def test_an_engine_without_an_inside_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    from jaxrag.engines.local.engine import Local
    from tests.scripted import ScriptedModel

    reader = Reader(prompts=str(tmp_path / "prompts.toml"))
    run = small_run(tmp_path, dragin.Config(reader=reader))
    monkeypatch.setattr(Local, "load", lambda self, cache: ScriptedModel({}))
    with pytest.raises(InputError, match=r"needs the model's attentions and hidden states.*Local"):
        prepare(run, tmp_path / "cache")
