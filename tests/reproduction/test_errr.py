"""Trainings in ERRR's tables."""

from pathlib import Path
from typing import Any

from jaxrag.configs.papers import ALL
from jaxrag.configs.papers.models import PUBLISHED
from jaxrag.data.benchmark import Benchmark
from jaxrag.methods.errr.ppo.job import TrainRrr
from jaxrag.methods.errr.student import TrainQueryOptimizer
from jaxrag.models.device_memory import Devices
from jaxrag.reproduction.check import key_variables, problems, requirements
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.reproduction.substitutes import Substitutes
from jaxrag.reproduction.work import Work, add_table
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import dpr
from jaxrag.retrieval.web.index import Web
from jaxrag.retrieval.wiki_dpr.index import WikiDpr
from jaxrag.runs.run import Run

HERE = Devices(1, 16e9, cpu=True)


def test_rewriters_learn_as_many_tokens_as_they_write(tmp_path: Path) -> None:
    """RRR's 50 and ERRR's 128 at paper scale: the student's training, and the run that uses it."""
    work = Work(tmp_path)
    table, printed = ALL.tables["errr/table3"], printed_tables()["errr/table3"]
    add_table(work, table, printed, "paper", ["popqa", "trainable_rrr", "trainable_errr"])
    students = [one for one in work.jobs.values() if isinstance(one, TrainQueryOptimizer)]
    runs: list[Any] = [one for one in work.jobs.values() if isinstance(one, Run)]
    writers = [getattr(run.method, "rewriter", None) or run.method.optimizer for run in runs]
    assert sorted(one.max_target for one in students) == [50, 128]
    assert sorted(one.tokens for one in writers) == [50, 128]


def jobs_of(tmp_path: Path, name: str, *only: str, **substitutes: Any) -> list[Any]:
    work = Work(tmp_path, change=Substitutes(**substitutes).apply)
    add_table(work, ALL.tables[name], printed_tables()[name], "paper", only)
    return list(work.jobs.values())


def test_the_local_setting_searches_the_published_vectors_and_needs_no_web(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "errr/table3")
    runs = [one for job in jobs if isinstance(one := getattr(job, "run", job), Run)]
    indexes = [run.index for run in runs]
    assert {one for one in indexes if one} == {WikiDpr(exact=True)}
    assert "BRAVE_API_KEY" not in {key for job in jobs for key in key_variables(job)}
    training = next(job for job in jobs if isinstance(job, TrainRrr))
    found = problems({tmp_path / "ppo": training}, tmp_path, PUBLISHED, HERE)
    assert any("holds no complete import" in message for message in found)
    web = [job.run.index for job in jobs_of(tmp_path, "errr/table2") if isinstance(job, TrainRrr)]
    assert {*web} == {Web()}
    # other passages have no published vectors
    [other, *_] = (
        job.run.index
        for job in jobs_of(tmp_path, "errr/table3", corpus="psgs_w100-first1000")
        if isinstance(job, TrainRrr)
    )
    assert other == Exact(dpr(), metric="l2")


def test_ppo_trains_on_the_first_questions_of_a_training_split(tmp_path: Path) -> None:
    """PopQA has no training split: 900 questions that are not evaluated, drawn at random."""
    jobs = [job for job in jobs_of(tmp_path, "errr/table3") if isinstance(job, TrainRrr)]
    assert all(job.run.limit == 1000 and job.leakage == "drop" for job in jobs)
    data: list[Any] = [job.run.data for job in jobs]
    assert data[0] == Benchmark("ambigqa", "train", "psgs_w100") and data[1].train == 900
    assert requirements("ppo", jobs[0], PUBLISHED, HERE).questions == 1000
