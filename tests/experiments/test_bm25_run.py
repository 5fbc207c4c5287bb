"""Runs over BM25: told beforehand, answered, resumed, refused where vectors are needed."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bm25s", reason="needs bm25s: pip install 'jaxrag[bm25]'")

from jaxrag.engines.local.engine import LocalModel
from jaxrag.evaluation.records import read_run
from jaxrag.experiments import run as script
from jaxrag.methods.retrieve_and_read import STANDARD_RAG
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.runs.config_file import load
from jaxrag.runs.plan import plan
from jaxrag.runs.run import Run, execute
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> Run:
    """Standard RAG over BM25 with a random model."""
    here = tmp_path_factory.mktemp("bm25")
    run = load(str(write_small_run(here, questions=12)))
    reader = Reader(prompts=str(here / "prompts.toml"), answer_tokens=4)
    method = dataclasses.replace(
        STANDARD_RAG, candidates=OnePath(n=3), select=Top(k=2), reader=reader
    )
    return dataclasses.replace(run, method=method, index=Bm25())


def test_a_run_is_planned_executed_and_resumed(
    small: Run, tmp_path: Path, monkeypatch: Any
) -> None:
    before = dict(plan(small, tmp_path / "run"))["index"]
    assert before.startswith("BM25: ") and before.endswith(", not built yet")
    assert " on disk, " in before and " of memory to search" in before
    assert execute(small, tmp_path / "run")["errors"] == 0
    after = dict(plan(small, tmp_path / "run"))
    assert after["index"].endswith(", built") and ": 12 answered, 0 left" in after["run"]
    run = read_run(tmp_path / "run")
    assert run.config["retriever"]["name"] == "BM25"
    assert run.config["retriever"]["bm25"]["settings"]["stemmer"] == "porter"
    for record in run.records:
        (search,) = record["trace"]["searches"]
        assert len(search["ids"]) <= 3 and search["scores"] == sorted(search["scores"])[::-1]
        assert record["cost"]["searches"] == 1
    monkeypatch.setattr(LocalModel, "generate_each", None)  # the store answers a second run
    assert execute(small, tmp_path / "again")["errors"] == 0
    again = (tmp_path / "again" / "answers.jsonl").read_bytes()
    assert again == (tmp_path / "run" / "answers.jsonl").read_bytes()
    directory = Path(before.rpartition(", in ")[2].removesuffix(", not built yet"))
    (vocabulary,) = directory.rglob("vocab*")
    vocabulary.write_bytes(vocabulary.read_bytes()[:-1])
    assert "vocab.index.json" in dict(plan(small))["index"]


@pytest.mark.parametrize("key, said", [("k1=-1", "k1 is -1"), ("b=2", "b is 2")])
def test_invalid_settings_on_the_command_line(key: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        script.main(["run", "--config=configs/baselines.py:bm25@tiny", f"--config.index.{key}"])
