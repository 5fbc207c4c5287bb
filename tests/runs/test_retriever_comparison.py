"""The comparison of retrievers: what it counts, and that it goes on where it was stopped."""

import dataclasses
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from jaxrag.core import jsonl
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.dataset import Dataset, without_themselves
from jaxrag.data.factbook import Factbook
from jaxrag.data.leakage import write_trained_on
from jaxrag.engines.local.engine import Local
from jaxrag.experiments import run as script
from jaxrag.methods.errr import queries, rrr
from jaxrag.methods.errr.ppo.job import TrainRrr
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs import retriever_comparison as comparison
from jaxrag.runs.loading import load_data, open_index_over
from jaxrag.runs.retriever_comparison import RetrieverComparison
from jaxrag.runs.run import Run
from jaxrag.types import InputError, Passage, Question, Ranking
from tests.retrieval.sidr import small_sidr

DATA = Factbook(countries=3)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> RetrieverComparison:
    here = tmp_path_factory.mktemp("compared")
    late = Sidr(str(small_sidr.write(here)), m=12, top=6, query_length=16, passage_length=24)
    return RetrieverComparison((Bm25(), late), (DATA,), (1, 5), limit=40, cache=str(here / "cache"))


def test_an_interrupted_comparison_resumes(
    job: RetrieverComparison, tmp_path: Path, monkeypatch: Any, capsys: Any
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
        patch.setattr(comparison, "open_index_over", fails)
        job.execute(tmp_path / "stopped")
    file = tmp_path / "stopped" / "retrievers.jsonl"
    assert len(file.read_text().splitlines()) == 1
    with file.open("a") as out:
        out.write('{"data": "cut off')
    opened.clear()
    with monkeypatch.context() as patch:
        patch.setattr(comparison, "open_index_over", fails)
        job.execute(tmp_path / "stopped")
    assert opened == [job.indexes[1]]
    assert file.read_bytes() == (tmp_path / "whole" / "retrievers.jsonl").read_bytes()
    assert [json.loads(line) for line in file.read_text().splitlines()] == whole
    (shown,) = outcome.shown
    Console().print(shown)
    assert "SiDR" in capsys.readouterr().out


@dataclasses.dataclass(frozen=True)
class Graded:
    """Three questions: one judged with grades, one with an answer alone, one with neither."""

    cut: int = 3

    def load(self, cache: Path) -> Dataset:
        where = cache / "graded"
        texts = ["red roses grow", "red wine", "blue sea", "a blue sky", "green", "Rome is red"]
        if not where.is_dir():
            write_passages(where, [Passage(f"p{i}", "", text) for i, text in enumerate(texts)])
        questions = (
            Question("judged", "red roses", ()),
            Question("answered", "which city is red", ("Rome",)),
            Question("neither", "green", ()),
        )
        return Dataset(
            name="graded",
            questions=questions[: self.cut],
            passages=Passages.open(where),
            gold={"judged": ("p0", "p1", "p5")},
            identity="graded",
            grades={"judged": {"p0": 1, "p1": 3, "p5": 2, "p2": 0}},
        )


class Fixed:
    """An index whose every ranking is written down."""

    identity = '{"index":"fixed"}'

    def __init__(self, found: Sequence[int]) -> None:
        self.found = tuple(found)

    def search_texts(self, texts: Sequence[str], k: int) -> list[Ranking]:
        some = self.found[:k]
        return [Ranking(some, tuple(-float(row) for row in range(len(some)))) for _ in texts]


def compared(
    tmp_path: Path, monkeypatch: Any, *orders: Sequence[int], **settings: Any
) -> tuple[list[dict[str, Any]], Path]:
    """The rows of a comparison of indexes that find these rows for every question."""
    found = iter(orders)
    monkeypatch.setattr(comparison, "open_index_over", lambda *_: Fixed(next(found)))
    monkeypatch.setattr(comparison, "search", lambda index, texts, k: index.search_texts(texts, k))
    data = settings.pop("data", Graded())
    job = RetrieverComparison(
        tuple(Bm25() for _ in orders), (data,), (1, 3), cache=str(tmp_path / "cache"), **settings
    )
    outcome = job.execute(tmp_path / "run")
    assert outcome.path == tmp_path / "run" / "retrievers.jsonl"
    return jsonl.read(outcome.path, key="index"), tmp_path / "run"


def test_graded_judgements_without_answers_by_hand(tmp_path: Path, monkeypatch: Any) -> None:
    """Found: p2 (grade 0), p5 (2), p0 (1), p1 (3). See `test_ranking_metrics` for the discounts.

    nDCG@3: (2 x 0.6309298 + 0.5) / (3 + 2 x 0.6309298 + 0.5) = 1.7618596 / 4.7618596 = 0.3699940.
    """
    rows, run = compared(tmp_path, monkeypatch, (2, 5, 0, 1), (1, 5, 0, 2), cutoff=3)
    first, second = rows
    assert first["questions"] == 2  # the third has nothing to be measured by
    means = {name: value[0] for name, value in first.items() if "@" in name}
    assert means == pytest.approx(
        {"recall@1": 0, "recall@3": 2 / 3, "mrr@3": 1 / 2, "ndcg@3": 0.3699940,
         "answer@1": 0, "answer@3": 1}, abs=1e-6
    )  # fmt: skip
    assert {name: value[3] for name, value in first.items() if "@" in name} == {
        **dict.fromkeys(("recall@1", "recall@3", "mrr@3", "ndcg@3"), 1),
        **dict.fromkeys(("answer@1", "answer@3"), 1),
    }
    # second: p1 (3), p5 (2), p0 (1), the ideal order
    assert second["mrr@3"][0] == second["ndcg@3"][0] == second["recall@3"][0] == 1
    mean, low, high, n, p = second["minus_first"]["mrr@3"]
    assert (mean, low, high, n) == (0.5, 0.5, 0.5, 1) and p == 1  # one question says nothing
    lines = jsonl.read(run / "rankings-0.jsonl")
    assert lines[0]["passages"] == ["p2", "p5", "p0"] and lines[0]["question_id"] == "judged"
    assert set(lines[1]["metrics"]) == {"answer@1", "answer@3"}


def test_a_query_is_no_result_for_itself(tmp_path: Path, monkeypatch: Any) -> None:
    """BEIR's rule of identical ids; one more passage is asked for in the own one's place."""
    plain = Graded().load(tmp_path)
    asked = [dataclasses.replace(plain.questions[0], id=name) for name in ("p2", "other")]
    same = plain._replace(questions=asked, gold={q.id: ("p5", "lost") for q in asked}, grades={})
    found = {}
    own = without_themselves(same)
    for hides, data in ((True, own), (False, same)):
        monkeypatch.setattr(comparison, "load_data", lambda *_, data=data: data)
        _, run = compared(tmp_path / str(hides), monkeypatch, (2, 5, 0, 1), cutoff=3)
        lines = jsonl.read(run / "rankings-0.jsonl")
        found[hides] = [(line["passages"], line["metrics"]["recall@1"]) for line in lines]
    # "lost" is not in the corpus and stays in the denominator
    assert found[True] == [(["p5", "p0", "p1"], 0.5), (["p2", "p5", "p0"], 0.0)]
    assert found[False] == [(["p2", "p5", "p0"], 0.0)] * 2
    index: Any = Fixed((2, 5, 0))
    scores = comparison.scores(index, own, own.questions, (1, 2))
    assert scores["recall@1"].tolist() == [0.5, 0] and scores["recall@2"].tolist() == [0.5, 0.5]


def test_what_limits_the_figures_is_said(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    data = Graded()
    dataset = data.load(tmp_path)
    gold = {name: (*ids, "lost") for name, ids in dataset.gold.items()}
    monkeypatch.setattr(comparison, "load_data", lambda *_: dataset._replace(gold=gold))
    compared(tmp_path, monkeypatch, ())
    said = capsys.readouterr().err
    assert "1 of 3 questions of graded have neither relevant passages nor open gold answers" in said
    assert "gold passages of graded are not in the corpus" in said
    assert "BM25 found no passage for 2 of 2 questions" in said


def test_settings_of_the_metrics(tmp_path: Path, monkeypatch: Any) -> None:
    """From grade 3 on only p1, at rank 4, is relevant. Gains are 0, 2, 1, 3."""
    (row,), _ = compared(tmp_path, monkeypatch, (2, 5, 0, 1), relevant_from=3, answers=False)
    assert row["mrr@10"][0] == 1 / 4 and row["recall@3"][0] == 0 and "answer@1" not in row
    dcg, ideal = 2 / math.log2(3) + 0.5 + 3 / math.log2(5), 3 + 2 / math.log2(3) + 0.5
    assert row["ndcg@10"][0] == pytest.approx(dcg / ideal)


def test_questions_that_cannot_be_measured_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    data = Graded()
    dataset = data.load(tmp_path)._replace(gold={}, grades={})
    assert [q.id for q in comparison.judged_or_answered(dataset, answers=True)] == ["answered"]
    with pytest.raises(InputError, match=r"graded has known relevant passages, so retrievers"):
        comparison.judged_or_answered(dataset, answers=False)
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"cutoff": 0}, "cutoff is 0"),
        ({"relevant_from": 0}, "relevant_from is 0"),
    )
    for settings, said in wrong:
        with pytest.raises(InputError, match=said):
            RetrieverComparison((Bm25(),), (data,), **settings)


def test_answers_count_where_no_passage_is_marked() -> None:
    asked = Question("q", "where", ("ROME",))
    found = [Passage("a", "", "Oslo"), Passage("b", "Rome", "x"), Passage("c", "", "in rome.")]
    assert comparison.answer_rank(asked, found) == 2
    assert comparison.answer_rank(asked, found[:1]) == math.inf
    assert comparison.answer_rank(Question("q", "where", ()), found) is None
    assert comparison.answer_rank(Question("q", "is it", ("yes",)), found) is None


def test_a_retriever_that_was_trained_on_the_questions_is_refused(
    job: RetrieverComparison, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late = job.indexes[1]
    assert isinstance(late, Sidr)
    checkpoint = shutil.copytree(late.checkpoint, tmp_path / "sidr")
    seen = comparison.known(load_data(DATA, Path(job.cache)), 40)[7]
    write_trained_on(checkpoint, [seen.text.upper()])
    indexes = (job.indexes[0], dataclasses.replace(late, checkpoint=str(checkpoint)))
    trained = dataclasses.replace(job, indexes=indexes)
    with pytest.raises(InputError, match=r"config.indexes .*sidr was trained on 1 of the 40"):
        trained.execute(tmp_path / "work")
    assert not (tmp_path / "work").exists()
    dataclasses.replace(trained, leakage="keep")._check_training(Path(job.cache))
    assert "was trained on 1 of the 40" in caplog.text


def test_a_dry_run_tells_sizes_of_data_and_indexes(
    job: RetrieverComparison, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a comparison, and of a training whose run brings data and index; one set is not built."""
    dataset = load_data(DATA, Path(job.cache))
    script.print_plan(dataclasses.replace(job, data=(DATA, Benchmark("nq"))), "")
    lines = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    told = {name: text.strip() for name, text in lines}
    questions, passages = f"{len(dataset.questions):,}", f"{len(dataset.passages):,}"
    assert told["data.0"].endswith(f"{questions} questions, {passages} passages")
    assert "jaxrag data" in told["data.1"]
    assert told["indexes.0"].startswith(f"BM25: {passages} passages, ")
    assert f"{passages} passages, " in told["indexes.1"] and "kB on disk" in told["indexes.1"]
    run = Run(
        rrr.Config(rewriter=queries.Trained(queries.StudentInput(context=False))),
        DATA,
        Local(),
        Bm25(),
        cache=job.cache,
    )
    script.print_plan(TrainRrr(run, DATA), "")
    lines = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    assert {"run.data", "evaluation_data", "run.index"} <= {name for name, _ in lines}
