"""What reproductions take, from settings alone."""

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from jaxrag.configs import ars, dtr, errr, r3
from jaxrag.configs.papers import ALL
from jaxrag.configs.papers.models import PARAMETERS, PUBLISHED, reading
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.engines.vllm import Vllm
from jaxrag.evaluation.prices import Price
from jaxrag.evaluation.records import describe_environment
from jaxrag.methods.ars.helpers import CountBandit, RewriteRanker
from jaxrag.methods.ars.strategies import Chosen, Ranked
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.models.device_memory import Devices
from jaxrag.reproduction.check import (
    Need,
    Rate,
    checkpoints,
    measured_rates,
    models_text,
    needs_grid,
    overview,
    paid_lines,
    problems,
    requirements,
    sizes,
)
from jaxrag.reproduction.choices import add
from jaxrag.reproduction.work import Work
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.dpr import Dpr
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import dpr
from jaxrag.retrieval.web.index import Web
from jaxrag.runs import calls
from jaxrag.runs.calls import CostRow
from jaxrag.steps.gates import JudgeGate

H200, HERE = Devices(1, 141e9), Devices(1, 16e9, cpu=True)
HUGE = "hub:Qwen/Qwen2.5-72B-Instruct"
TABLE = {
    (method, "dtr", "open", k): CostRow(method, "dtr", "open", k, 20, costs)
    for method, k, costs in (
        ("dtr", 3, {"llm_calls": 2.5, "prompt_tokens": 700, "new_tokens": 150, "searches": 1.6}),
        ("no_retrieval", 0, {"llm_calls": 1.0, "prompt_tokens": 40, "new_tokens": 20}),
    )
}


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> dict[Any, CostRow]:
    """A table of calls with few rows."""
    rows = dict(TABLE)
    monkeypatch.setattr(calls, "read_table", lambda file: rows)
    return rows


def folder(path: Path) -> Folder:
    """A folder whose files have no content."""
    for name in ("queries", "corpus"):
        (path / f"{name}.jsonl").touch()
    return Folder(str(path))


def need_of(name: str, job: Any) -> Need:
    return requirements(name, job, PUBLISHED, H200)


def test_calls_tokens_and_sizes_of_a_run_at_paper_scale() -> None:
    need = need_of("dtr-nq-0123", dtr.get_config("dtr@paper-nq"))
    assert (need.questions, need.passages, need.corpus) == (3610, 21_015_324, "psgs_w100")
    assert need.costs is not None
    assert (need.costs["llm_calls"], need.costs["searches"]) == (2.5 * 3610, 1.6 * 3610)
    assert need.seconds({}) is None and need.seconds({"other": Rate(1, 1)}) is None
    seconds = need.seconds({"": Rate(1000, 100)})
    assert seconds == pytest.approx(3610 * (700 / 1000 + 150 / 100))
    # 21,015,324 x 1024 float16 numbers are 43 GB
    assert need.index.startswith("Exact: 43 GB") and " on disk" in need.index
    job, reranked, alone = (
        dtr.get_config(f"{name}@paper-nq") for name in ("dtr", "rerank", "no_retrieval")
    )
    models = ["hub:Qwen/Qwen2.5-7B-Instruct", "hub:BAAI/bge-large-en-v1.5"]
    assert list(checkpoints(job)) == models and list(checkpoints(alone)) == models[:1]
    assert list(checkpoints(reranked)) == [*models, "hub:BAAI/bge-reranker-base"]
    assert models_text([job], {models[0]: 7.62}).endswith("(15.2 GB)")
    grid = needs_grid({"dtr/table2": [need]}, {"Qwen2.5-7B-Instruct": Rate(1000, 1000)})
    line = ("1", "3,610", "9,025", "2.5 M", "0.5 M", "0", "5,776", "51 min", "")
    assert grid.rows == [("dtr/table2", *line), ("all", *line)]


def test_a_method_without_a_row_is_unknown_and_in_no_sum() -> None:
    known = need_of("dtr-nq-0", dtr.get_config("dtr@paper-nq"))
    unknown = need_of("hyde-nq-1", dtr.get_config("hyde@paper-nq"))
    assert unknown.costs is None and unknown.seconds({"": Rate(1, 1)}) is None
    dtr_run: Any = dtr.get_config("dtr@paper-nq")
    assert need_of("dtr-nq-2", reading(dtr_run, 5)).costs is None
    assert need_of("closed-nq-3", dtr.get_config("no_retrieval@paper-nq")).costs  # reads none
    grid = needs_grid({"a": [known], "b": [unknown]}, {"": Rate(1000, 1000)})
    _, alone, both = grid.rows
    assert alone[3:] == (*["unknown"] * 6, "1 of 1")
    assert both[:5] == ("all", "2", "7,220", "9,025", "2.5 M") and both[8:] == ("51 min", "1 of 2")
    assert needs_grid({"a": [known]}, {}).rows[0][8] == "unknown"
    console = Console(width=100, file=io.StringIO())
    console.print(needs_grid({"pairs/figure10": [known, unknown]}, {}).terminal())
    assert "pairs/figure10" in console.file.getvalue()  # pyright: ignore
    # a folder's size is not known, and a comparison of retrievers asks no language model
    own = known._replace(questions=None, costs=None)
    assert needs_grid({"a": [own]}, {}).rows[0] == ("a", "1", *["unknown"] * 7, "1 of 1")
    assert needs_grid({"a": [Need("recall-1", questions=8)]}, {}).rows[0] == ("a", "1", *[""] * 8)
    told = overview(Work(Path()), [known, unknown], PUBLISHED, H200)
    assert told[-1].startswith("Unknown calls: hyde: run a few questions")


def test_a_limit_and_a_draw() -> None:
    run: Any = dtr.get_config("no_retrieval@paper-webq")
    need = need_of("x-1", dataclasses.replace(run, limit=500))
    assert need.questions == 500 and need.index == "" and need.corpus == ""
    of_set: Any = dtr.get_config("dtr@paper-2wiki")  # its own contexts, of which the paper has 431K
    assert need_of("x-1", of_set).passages == 431_000
    own = dataclasses.replace(run, data=Folder("questions"))  # of a size that is not known
    assert need_of("x-1", own).questions is None
    assert need_of("x-1", dataclasses.replace(own, limit=100)).questions == 100
    drawn: Any = ars.get_config("rewriter10@paper-boolq")
    assert sizes(drawn.data)[0] == 400
    labels: Any = ars.get_config("make_gold_labels@paper-boolq")
    assert need_of("x-1", labels).questions == 1600


def test_checkpoints_of_other_jobs_are_not_missing(tmp_path: Path) -> None:
    """ARS-RAG's ranker and bandit are trained by jobs before it; elsewhere they must be there."""
    run: Any = ars.get_config("ars@paper-boolq")
    order = Ranked(ranker=RewriteRanker("made/TrainRanker-1/ranker"))
    count = Chosen(CountBandit("made/TrainBandit-1/bandits/x/weighted"))
    method = dataclasses.replace(run.method, order=order, count=count)
    run = dataclasses.replace(run, method=method, data=folder(tmp_path))
    jobs = {Path("ars-1"): run, Path("rrr-1"): errr.get_config("train_rrr_qa@paper-popqa")}

    def missing(root: str) -> list[str]:
        return [one for one in problems(jobs, Path(root), PUBLISHED, H200) if "checkpoint" in one]

    assert not missing("made")  # RRR's rewriter is trained by the job itself
    assert [one for one in missing("elsewhere") if "TrainRanker-1/ranker is no directory" in one]


def test_what_trainings_ask_is_unknown(table: dict[Any, CostRow]) -> None:
    """Even where the calls of their methods are known; without a language model nothing is."""
    for key in (("r3", "r3", "multiple_choice", 1), ("rrr", "errr_popqa", "open", 0)):
        table[key] = CostRow(*key, 3, {"llm_calls": 1.0})
    job: Any = r3.get_config("train_r3@paper-arc_challenge")
    start = dataclasses.replace(job.start, checkpoint=str(Path("made/TrainSidr-1/retriever")))
    need = need_of("TrainR3-1", dataclasses.replace(job, start=start))
    assert need.questions == 1119 and need.costs is None and need.index.startswith("Sidr")
    need = need_of("TrainRrr-1", errr.get_config("train_rrr_qa@paper-popqa"))
    assert need.questions == 900 and need.costs is None
    sidr = need_of("TrainSidr-1", r3.get_config("train_sidr@paper-nq"))
    assert sidr.questions == 79_168 and sidr.costs == {}


def test_indexes_without_a_published_encoder() -> None:
    """100 words of 8 bytes a passage; DPR's 768 numbers of 2 bytes."""
    run: Any = r3.get_config("standard_rag@paper-nq")
    bm25 = need_of("x-1", dataclasses.replace(run, index=Bm25())).index
    assert bm25.startswith("Bm25: 16.8 GB on disk") and "100 different words" in bm25
    own = need_of("x-1", dataclasses.replace(run, index=Dpr("made/retriever"))).index
    assert own.startswith("Dpr: 32.3 GB on disk")
    published = need_of("x-1", dataclasses.replace(run, index=Exact(dpr()))).index
    assert published.startswith("Exact: 32.3 GB on disk")


def test_every_table_and_figure_at_paper_scale(tmp_path: Path) -> None:
    """Each job's settings fit; sizes of indexes and of models are known."""
    work = Work(tmp_path)
    for name in (*ALL.tables, *ALL.figures):
        add(ALL, work, name, "paper")
    for path, job in work.jobs.items():
        need = need_of(path.name, job)
        assert need.questions or not need.model, path
        unknown = "of a corpus whose size is not known" in need.index  # as of a set's own contexts
        assert not need.index or unknown or ":" in need.index or need.index == "Web", need.index
        lacking = {c for c in checkpoints(job) if c.startswith("hub:")} - {*PARAMETERS}
        assert not lacking, path
    assert all(ALL.left_out.values())


def test_paid_calls_and_searches(table: dict[Any, CostRow]) -> None:
    costs = {"llm_calls": 1.0, "prompt_tokens": 500, "new_tokens": 100, "searches": 1.0}
    table["rag", "errr_popqa", "open", 5] = CostRow("rag", "errr_popqa", "open", 5, 20, costs)
    run: Any = errr.get_config("rag@paper-popqa")
    need = need_of("rag-1", dataclasses.replace(run, index=Web(), limit=500))
    price = Price(0.5, 1.5, "2024-02-16")
    # 500 x (500 x 0.5 + 100 x 1.5) / 1e6 dollars
    assert paid_lines([need], {"gpt-3.5-turbo": price}, 5.0) == [
        "gpt-3.5-turbo: 500 calls, dollars: 0.20, at the price of 2024-02-16",
        "web: 500 searches, dollars: 2.50",
    ]
    told = "\n".join(paid_lines([need], {}, None))
    assert "500 calls, name its price in the file of $JAXRAG_PRICES" in told
    assert "500 searches, give --search_price" in told
    table.clear()
    unknown = need_of("rag-1", dataclasses.replace(run, limit=500))
    (told,) = paid_lines([unknown], {"gpt-3.5-turbo": price}, None)
    assert "unknown calls, dollars: unknown, at" in told
    assert "; 1 of 1 jobs are unknown and not counted" in told
    assert not paid_lines([need_of("x-1", dtr.get_config("dtr@paper-nq"))], {}, None)


def test_all_problems_are_found_in_one_pass(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    run: Any = dtr.get_config("dtr@paper-nq")
    web: Any = errr.get_config("rag@paper-popqa")
    alone: Any = dtr.get_config("no_retrieval@paper-nq")
    method = dataclasses.replace(run.method, gate=JudgeGate(Local(str(tmp_path / "no_judge"))))
    calibrated = dataclasses.replace(run.method, gate=UncertaintyGate("ratio:0.5"))
    jobs = {
        tmp_path / "a": dataclasses.replace(run, cache=str(tmp_path), method=method),
        tmp_path / "b": dataclasses.replace(run, cache=str(tmp_path), index=None),
        tmp_path / "c": dataclasses.replace(web, data=Folder("nowhere")),
        tmp_path / "d": dataclasses.replace(
            run, data=folder(tmp_path), model=Local(tensor_parallel=512)
        ),
        tmp_path / "e": dataclasses.replace(alone, data=folder(tmp_path), model=Local(HUGE)),
        tmp_path / "f": dataclasses.replace(alone, data=Folder(str(tmp_path), "train")),
        tmp_path / "g": dataclasses.replace(alone, data=Folder(str(tmp_path), corpus="no/pool")),
        tmp_path / "h": dataclasses.replace(web, data=Benchmark("popqa", corpus="no/pool")),
        tmp_path / "i": dataclasses.replace(run, method=calibrated, data=folder(tmp_path)),
    }
    found = problems(jobs, tmp_path / "runs", PUBLISHED, HERE)
    for part, names in {
        "set nq is not built": ["a", "b"],
        "corpus psgs_w100 is not built": ["a", "b"],
        "no_judge": ["a"],
        "searches, but the run has no index": ["b"],
        "no questions at nowhere": ["c"],
        "$OPENAI_API_KEY is not set": ["c", "h"],
        "train.jsonl: no such file": ["f", "i"],
        "no/pool: no such folder": ["g"],
        "no/pool: this directory of passages does not exist": ["h"],
        "512": ["d"],
        "72B-Instruct: up to 339 GB": ["e"],
    }.items():
        assert [jobs for message, jobs in found.items() if part in message] == [names], part
    # what the jobs will have made themselves is not missing
    made = dataclasses.replace(jobs[tmp_path / "a"], data=folder(tmp_path))
    assert not problems({tmp_path / "a": made}, tmp_path, PUBLISHED, H200)
    assert not problems({tmp_path / "x": dtr.get_config("dtr@tiny")}, tmp_path, PUBLISHED, HERE)


@pytest.mark.parametrize(
    ("model", "devices", "told"),
    [
        (
            Vllm(HUGE),
            Devices(1, 141e9),
            "Instruct, vLLM: up to 146 GB (145 GB weights, 336 MB keys",
        ),
        (Vllm(HUGE, memory=0.9, tensor_parallel=2), Devices(2, 141e9), ""),
        # of a GPU whose memory JAX may use three quarters, vLLM takes its share of the whole
        (Vllm(HUGE, memory=0.55, tensor_parallel=2), Devices(2, 105e9, share=0.75), ""),
        (Vllm(HUGE, memory=0.5, tensor_parallel=2), Devices(2, 141e9), "weights, 168 MB keys"),
        (Local(HUGE, tensor_parallel=4), Devices(2, 141e9), "lies on 4 devices, and there are 2"),
        (Local("hub:no/shapes"), Devices(1, 1e9), ""),  # unknown is no problem
    ],
)
def test_memory_of_models(model: Any, devices: Devices, told: str, tmp_path: Path) -> None:
    run: Any = dtr.get_config("no_retrieval@paper-nq")
    jobs = {tmp_path / "a": dataclasses.replace(run, data=folder(tmp_path), model=model)}
    found = [one for one in problems(jobs, tmp_path, PUBLISHED, devices) if "pip" not in one]
    assert (told in found[0]) if told else not found


def test_rates_are_measured_by_runs_without_stored_results(tmp_path: Path) -> None:
    devices = describe_environment()["devices"]
    for name, tokens, seconds, used in (
        ("a", 1000, 1.0, devices),
        ("b", 3000, 2.0, devices),
        ("stored", 9000, None, devices),
        ("elsewhere", 9000, 1.0, {"tpu": 4}),
    ):
        directory = tmp_path / "small" / "runs" / name
        directory.mkdir(parents=True)
        totals = {"prompt_tokens": tokens, "new_tokens": 0, "seconds": seconds}
        config = {"language_model": {"name": "m"}}
        head = {"config": config, "environments": [{"devices": used}]}
        times = [("started", "00:00:00"), ("progress", "00:00:10")]
        lines = [
            {"time": f"2026-01-01T{time}+00:00", "message": message} for message, time in times
        ]
        (directory / "metrics.json").write_text(json.dumps({"totals": totals}))
        (directory / "config.json").write_text(json.dumps(head))
        (directory / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert measured_rates(tmp_path) == {"m": Rate(300, 300)}
