"""Runs over a search engine on the web: answered, resumed, repeated without it, refused."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from jaxrag.core import http
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.report.page import write_report
from jaxrag.methods.retrieve_and_read import STANDARD_RAG
from jaxrag.retrieval.web.index import Web
from jaxrag.runs.config_file import load
from jaxrag.runs.loading import open_index_over
from jaxrag.runs.run import Run, execute
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from tests.experiments.small_run import write_small_run
from tests.retrieval.web.fake_search import KEY, serving


@pytest.fixture
def small(tmp_path: Path, monkeypatch: Any) -> Run:
    """Standard RAG with a random model; the test names the server."""
    monkeypatch.setattr(http, "_FIRST_PAUSE", 0.01)
    monkeypatch.setenv("BRAVE_API_KEY", KEY)
    run = load(str(write_small_run(tmp_path, questions=8)))
    reader = Reader(prompts=str(tmp_path / "prompts.toml"), answer_tokens=4)
    return dataclasses.replace(
        run,
        method=dataclasses.replace(
            STANDARD_RAG, candidates=OnePath(n=3), select=Top(k=2), reader=reader
        ),
    )


def web(run: Run, server: Any, **settings: Any) -> Any:
    options = {"url": server.url, "rate": 1000.0, "patience": 2.0, "count": 4}
    return dataclasses.replace(run, index=Web(**(options | settings)))


def answers(workdir: Path) -> bytes:
    return (workdir / "answers.jsonl").read_bytes()


def afresh(run: Run) -> None:
    """As in another process, with another store, so that the index is asked again."""
    open_index_over.cache_clear()
    (Path(run.cache) / "store.sqlite").unlink()


def test_a_run_is_planned_executed_and_repeated_offline(small: Run, tmp_path: Path) -> None:
    with serving() as server:
        run = web(small, server)
        assert "no search is stored" in run.index.status(None, Path(run.cache)).state
        assert execute(run, tmp_path / "run")["errors"] == 0
        assert len(server.asked) == 8
        assert "8 searches, 32 passages" in run.index.status(None, Path(run.cache)).state
    found = read_run(tmp_path / "run")
    assert found.config["retriever"]["web"]["engine"] == "brave"
    assert KEY not in str(found.config) and found.config["retriever"]["edition"]
    for record in found.records:
        (search,) = record["trace"]["searches"]
        question = record["question"]
        assert search["ids"][2].startswith(f"https://x.org/{question}/2#passage-")
        assert search["scores"] == [1, 1 / 2, 1 / 3]
        assert record["trace"]["selected"]["ids"] == search["ids"][:2]
        assert record["cost"]["searches"] == 1
    afresh(run)
    alone = web(small, server, offline=True, rate=2.0)
    assert execute(alone, tmp_path / "alone")["errors"] == 0
    assert answers(tmp_path / "alone") == answers(tmp_path / "run")
    write_report([tmp_path / "run", tmp_path / "alone"], tmp_path / "report")


def test_a_refused_query_fails_only_its_question(small: Run, tmp_path: Path) -> None:
    def refuses(handler: Any, number: int, asked: Any) -> Any:
        return asked["q"].endswith(" 5") and handler.send(422, {"error": {"code": "VALIDATION"}})

    with serving(refuses) as server:
        run = web(small, server)
        assert execute(run, tmp_path / "run")["errors"] == 1
        assert len(server.asked) == 8
        (failed,) = [r for r in read_run(tmp_path / "run").records if "error" in r]
        assert failed["question"].endswith(" 5") and "refuses this query" in failed["error"]
        server.fault = lambda *_: False
        afresh(run)
        assert execute(run, tmp_path / "run")["errors"] == 0
        assert len(server.asked) == 9
