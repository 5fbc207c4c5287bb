"""Whose queries find more: what is searched for, how it is counted, what is refused."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from jaxrag.configs.errr import get_config
from jaxrag.core import jsonl
from jaxrag.data.dataset import Dataset
from jaxrag.data.factbook import Factbook
from jaxrag.data.leakage import write_trained_on
from jaxrag.methods.errr.query_recall import QueryRecall
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs import retriever_comparison as comparison
from jaxrag.runs.loading import load_data, open_index_over
from jaxrag.steps.candidates import merged
from jaxrag.steps.episode import Pool
from jaxrag.types import InputError, Question

DATA = Factbook(countries=3)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def dataset(cache: str) -> Dataset:
    return load_data(DATA, Path(cache))


def written(path: Path, lines: list[dict[str, Any]]) -> str:
    (path / "held_out.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def lines_of(questions: list[Question]) -> list[dict[str, Any]]:
    """A teacher that repeats the question, a student that cannot be read or asks two things."""
    lines = [
        {"question_id": one.id, "target": f"{one.text} **", "output": " ; ** ", "ended": 1.0}
        for one in questions
    ]
    lines[0]["output"] = f"exports of the country; {questions[0].text} **"
    # cut off in the second query, which is left out, although it would find what is wanted
    lines[3] |= {"output": f"exports of the country; {questions[3].text}", "ended": 0.0}
    return lines


def test_recall_of_each_writer_at_equal_depths(
    cache: str, dataset: Dataset, tmp_path: Path
) -> None:
    questions = comparison.known(dataset)[:12]
    file = written(tmp_path, lines_of(questions))
    job = QueryRecall(file, Bm25(), DATA, depths=(1, 3), cache=cache)
    rows = jsonl.read(job.execute(tmp_path / "job").path, key="queries")
    assert [row["queries"] for row in rows] == ["question", "teacher", "student"]
    own, teacher, student = rows
    assert own["questions"] == 12 and "minus_question" not in own
    assert teacher["recall@3"] == own["recall@3"]
    assert teacher["minus_question"]["recall@3"] == [0, 0, 0, 12, 1]
    index = open_index_over(Bm25(), DATA, Path(cache))
    asked = [[one.text] for one in questions]
    asked[0], asked[3] = ["exports of the country", *asked[0]], ["exports of the country"]
    for k in (1, 3):
        shares = []
        for texts, question in zip(asked, questions, strict=True):
            rankings = comparison.search(index, texts, 3)
            first = merged([Pool(one.ids, one.scores) for one in rankings], "fusion").rows[:k]
            gold = set(dataset.gold[question.id])
            names = {passage.id for passage in dataset.passages.get(first)}
            shares.append(len(names & gold) / len(gold))
        np.testing.assert_allclose(student[f"recall@{k}"][0], np.mean(shares))
    assert student["recall@3"][0] < own["recall@3"][0]
    difference = student["recall@3"][0] - own["recall@3"][0]
    np.testing.assert_allclose(student["minus_question"]["recall@3"][0], difference)
    again = job.execute(tmp_path / "job")
    assert jsonl.read(again.path, key="queries") == rows


def test_the_table_has_means_and_differences(cache: str, tmp_path: Path) -> None:
    questions = comparison.known(load_data(DATA, Path(cache)))[:4]
    job = QueryRecall(written(tmp_path, lines_of(questions)), Bm25(), DATA, cache=cache)
    (table,) = job.execute(tmp_path / "job").shown
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    printed = console.export_text()
    assert "student" in printed and printed.count("Δ +0.0 [+0.0, +0.0]") >= 3


def test_a_retriever_that_was_trained_on_the_questions_is_refused(
    cache: str, dataset: Dataset, tmp_path: Path
) -> None:
    questions = comparison.known(dataset)[:3]
    write_trained_on(tmp_path, [questions[1].text])
    index = Sidr(checkpoint=str(tmp_path))
    job = QueryRecall(written(tmp_path, lines_of([*questions, *questions])[:3]), index, DATA,
                      cache=cache)  # fmt: skip
    with pytest.raises(InputError, match=r"config.index .*was trained on 1 of the 3"):
        job.execute(tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_invalid_settings_and_files_are_refused(
    cache: str, dataset: Dataset, tmp_path: Path
) -> None:
    job = QueryRecall("", Bm25(), DATA, cache=cache)
    with pytest.raises(InputError, match=r"where there is no held_out\.jsonl"):
        job.execute(tmp_path / "none")
    known = comparison.known(dataset)[0].id
    others = [{"question_id": "x", "target": "a **", "output": "b **"}]
    for lines, told in (
        (others, "no question in common"),
        (
            [{**others[0], "question_id": known, "output": None}],
            "output None",
        ),
    ):
        (tmp_path / told[:3]).mkdir()
        job = QueryRecall(written(tmp_path / told[:3], lines), Bm25(), DATA, cache=cache)
        with pytest.raises(InputError, match=told):
            job.execute(tmp_path / f"job {told[:3]}")
    with pytest.raises(InputError, match="depths"):
        QueryRecall("x", Bm25(), DATA, depths=())
    with pytest.raises(InputError, match="merge"):
        QueryRecall("x", Bm25(), DATA, merge="sum")  # pyright: ignore
    with pytest.raises(InputError, match="no data"):
        get_config("query_recall@wikipedia")
