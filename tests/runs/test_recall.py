"""The comparison of retrievers: what it counts, and that it goes on where it was stopped."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from jaxrag.core import jsonl
from jaxrag.data.factbook.build import Factbook
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs import recall
from jaxrag.runs.loading import load_data, open_index_over
from jaxrag.types import InputError
from tests.retrieval.sidr import small_sidr

DATA = Factbook(countries=3)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> recall.Recall:
    here = tmp_path_factory.mktemp("recall")
    late = Sidr(str(small_sidr.write(here)), m=9, top=6, query_length=16, passage_length=24)
    return recall.Recall((Bm25(), late), (DATA,), (1, 5), limit=40, cache=str(here / "cache"))


def test_shares_of_gold_passages_by_hand(job: recall.Recall) -> None:
    dataset = load_data(DATA, Path(job.cache))
    index = open_index_over(Bm25(), DATA, Path(job.cache))
    questions = recall.known(dataset, 40)
    told: list[int] = []
    found = recall.scores(index, dataset, questions, (1, 5), done=told.append)
    assert told == [32, 8]
    rankings = recall.search(index, [question.text for question in questions], 5)
    names = [[p.id for p in dataset.passages.get(ranking.ids)] for ranking in rankings]
    for depth in (1, 5):
        shares = [
            len({*row[:depth]} & {*dataset.gold[question.id]}) / len({*dataset.gold[question.id]})
            for row, question in zip(names, questions, strict=True)
        ]
        np.testing.assert_allclose(found[f"recall@{depth}"], shares)
    assert 0 < found["recall@5"].mean() < 1


def test_an_interrupted_comparison_resumes(
    job: recall.Recall, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    outcome = job.execute(tmp_path / "whole")
    whole = jsonl.read(outcome.path, key="index")
    assert [row["index"] for row in whole] == [one.name for one in job.indexes]
    opened: list[Any] = []

    def fails(settings: Any, *rest: Any) -> Any:
        opened.append(settings)
        if len(opened) == 2:
            raise InputError("no room")
        return open_index_over(settings, *rest)

    with monkeypatch.context() as patch, pytest.raises(InputError, match="no room"):
        patch.setattr(recall, "open_index_over", fails)
        job.execute(tmp_path / "stopped")
    file = tmp_path / "stopped" / "recall.jsonl"
    assert len(file.read_text().splitlines()) == 1
    with file.open("a") as out:
        out.write('{"data": "cut off')
    opened.clear()
    with monkeypatch.context() as patch:
        patch.setattr(recall, "open_index_over", fails)
        job.execute(tmp_path / "stopped")
    assert opened == [job.indexes[1]]
    assert file.read_bytes() == (tmp_path / "whole" / "recall.jsonl").read_bytes()
    assert [json.loads(line) for line in file.read_text().splitlines()] == whole
    (shown,) = outcome.shown
    Console().print(shown)
    assert "SiDR" in capsys.readouterr().out
