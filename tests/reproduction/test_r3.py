"""What R3's declarations run."""

from pathlib import Path
from typing import Any

from jaxrag.configs import r3
from jaxrag.configs.data import training_of
from jaxrag.configs.papers import ALL
from jaxrag.configs.papers.r3 import share_of
from jaxrag.data.draw import Draw
from jaxrag.methods.r3.jobs import TrainDpr
from jaxrag.reproduction.measures import JOB
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.reproduction.work import Work, add_figure, add_table
from jaxrag.retrieval.dense.dpr import Dpr
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs.run import Run

NAMES = [*dict.fromkeys(name for name in (*ALL.tables, *ALL.figures) if name.startswith("r3/"))]


def test_all_that_the_text_shows_is_named() -> None:
    named = {*NAMES, *(name for name in ALL.left_out if name.startswith("r3/"))}
    printed = {f"r3/table{n}" for n in range(1, 9)} | {f"r3/figure{n}" for n in range(1, 15)}
    assert named == printed | {"r3/appendix_h"}  # a statement without a table


def test_self_rag_reads_as_many_passages_as_its_row(tmp_path: Path) -> None:
    """The rows over SiDR_MS with 1 and 10 passages; a small model reads a third, rounded up."""
    work = Work(tmp_path)
    only = ["nq", "self_rag_llama3_8b_sidr"]
    for scale, expected in (("small", [1, 4]), ("paper", [])):
        table, printed = ALL.tables["r3/table1"], printed_tables()["r3/table1"]
        rows = add_table(work, table, printed, scale, only)  # pyright: ignore
        runs: list[Any] = [work.jobs[found.directories[JOB]] for found in rows.values()]
        counts = [(run.method.candidates.n, run.method.select.k) for run in runs]
        assert counts == [(k, k) for k in expected]


def test_the_baselines_of_a_config_are_those_of_the_table(tmp_path: Path) -> None:
    """Model, prompts, passages and retriever, with one passage; the table's run has a label."""
    work = Work(tmp_path)
    table, printed = ALL.tables["r3/table1"], printed_tables()["r3/table1"]
    rows = add_table(work, table, printed, "paper", ["nq", "standard_rag_contriever_ms"])
    [made] = [one for (row, _), one in rows.items() if printed.rows[row].passages == 1]
    of_table: Any = work.jobs[made.directories[JOB]]
    of_config: Any = r3.get_config("contriever_ms@paper-nq")
    for field in ("method", "model", "index"):
        assert getattr(of_config, field) == getattr(of_table, field)


def test_equal_trainings_are_one(tmp_path: Path) -> None:
    """One training of PubHealth from SiDR_MS serves Tables 1, 2, 5, 7, and Figures 4, 5 and 7."""
    work = Work(tmp_path)
    for name in ("r3/table7", "r3/table5"):
        add_table(work, ALL.tables[name], printed_tables()[name], "paper", ["pubhealth"])
    for name in ("r3/figure4", "r3/figure5", "r3/figure7"):
        add_figure(work, name, ALL.figures[name], "paper")
    trainings = [path.name for path in work.jobs if path.name.startswith("TrainR3-pubhealth")]
    # both, offline, online, KL; beta, re-indexed; sampling B and C
    assert len(trainings) == len(set(trainings)) == 8


def test_replug_is_trained_with_the_model_that_reads_and_mixes_at_the_same_temperature(
    tmp_path: Path,
) -> None:
    work = Work(tmp_path)
    table = printed_tables()["r3/table1"]
    found = add_table(work, ALL.tables["r3/table1"], table, "paper", ["replug", "arc_challenge"])
    [path] = {results.directories[JOB] for results in found.values()}
    run: Any = work.jobs[path]
    [training] = (work.jobs[one] for one in work.needs[path] if "TrainR3" in one.name)
    job: Any = training
    assert run.model == job.model and run.model.checkpoint == "hub:meta-llama/Llama-2-7b-hf"
    assert run.method.temperature == job.training.update.temperature == 25


def test_periodic_re_indexing_begins_with_dpr_trained_on_ms_marco(tmp_path: Path) -> None:
    work = Work(tmp_path)
    found = add_figure(work, "r3/figure5", ALL.figures["r3/figure5"], "paper", ["nq"])
    [results] = found.values()
    job: Any = work.jobs[results.directories["w/o semi-para"]]
    [before] = (work.jobs[path] for path in work.needs[results.directories["w/o semi-para"]])
    assert isinstance(job.start, Dpr) and (job.search, job.reindex_epochs) == ("reindexed", 15)
    other: Any = r3.get_config("train_r3_from_dpr@paper-pubhealth")
    for questions in (1119, 8079, 79_168):  # ARC-Challenge, PubHealth, NQ
        for made in (job, other):
            every, steps = (
                made.steps_between_indexings(questions),
                made.training.steps_over(questions),
            )
            online = [at for at in range(steps) if made.training.is_online(at, steps)]
            assert len(range(online[0], steps, every)) == 3
    assert isinstance(before, TrainDpr) and before.data[0] == training_of("msmarco")[0]


def test_relevance_and_answer_probability_order_the_same_passages_of_the_same_questions(
    tmp_path: Path,
) -> None:
    work = Work(tmp_path)
    table = printed_tables()["r3/table6"]
    add_table(work, ALL.tables["r3/table6"], table, "paper", ["nq"])
    runs = [job for job in work.jobs.values() if isinstance(job, Run)]
    assert {run.method.name for run in runs} == {"r3", "answer_probability"}
    for run in runs:
        data, index = run.data, run.index
        assert isinstance(data, Draw) and (data.part, data.train, run.limit) == ("train", 1000, 0)
        assert isinstance(index, Sidr) and (index.search, index.m) == ("late", 100)


def test_progress_counts_the_on_policy_phase() -> None:
    rows = printed_tables()["r3/table7"].rows
    assert [share_of(row) for row in rows[:5]] == [0.5, 0.625, 0.75, 0.875, 1.0]
    assert share_of(printed_tables()["r3/table5"].rows[0]) == 1.0
