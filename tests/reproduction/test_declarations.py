"""The papers' declared tables fit the printed ones, and make the right jobs at every scale."""

from pathlib import Path
from typing import Any

import pytest

from jaxrag.configs import dtr, pairs, r3
from jaxrag.configs.data import training_of
from jaxrag.configs.papers import ALL
from jaxrag.configs.papers.claims import CLAIMS
from jaxrag.configs.papers.models import PUBLISHED
from jaxrag.configs.papers.pairs import TABLES
from jaxrag.configs.papers.r3 import share_of
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.draw import Draw
from jaxrag.methods.errr.ppo.job import TrainRrr
from jaxrag.methods.errr.student import TrainQueryOptimizer
from jaxrag.methods.r3.jobs import TrainDpr
from jaxrag.models.device_memory import Devices
from jaxrag.reproduction.cells import table_cells
from jaxrag.reproduction.check import key_variables, problems, requirements
from jaxrag.reproduction.claims import Claim, printed_effects, rows_of
from jaxrag.reproduction.measures import JOB, Results
from jaxrag.reproduction.printed.comparison import MEAN_OF_ALL
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.reproduction.substitutes import Substitutes
from jaxrag.reproduction.tables import SCALES, Scale
from jaxrag.reproduction.work import Work, add_figure, add_table
from jaxrag.retrieval.dense.dpr import Dpr
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import contriever, dpr
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.retrieval.web.index import Web
from jaxrag.retrieval.wiki_dpr.index import WikiDpr
from jaxrag.runs.job import Job
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import FixedMix
from tests.reproduction.test_gate_figures import write


@pytest.mark.parametrize("name", ALL.tables)
def test_every_printed_value_has_a_measure_or_a_reason(name: str) -> None:
    table, printed = ALL.tables[name], printed_tables()[name]
    values = ((row, m) for row in printed.rows for own in row.values.values() for m in own)
    for row, metric in values:
        if table.without(row.method, "paper") or metric == MEAN_OF_ALL:
            continue
        measures = {**table.measures, **table.lines[row.method].measures}
        known = printed.metric_of(metric) or metric in {**measures, **printed.differences}
        assert known, (row.method, metric)


@pytest.mark.parametrize("name", ALL.tables)
def test_every_row_has_a_line_or_a_reason(name: str) -> None:
    table, methods = ALL.tables[name], {row.method for row in printed_tables()[name].rows}
    assert methods <= {*table.lines, *table.left_out}
    assert not set(table.lines) & set(table.left_out)


def declared(
    name: str, *only: str, scale: Scale = "paper", work: Work | None = None, **substitutes: Any
) -> tuple[Work, Any]:
    """The work of a table or figure, and the directories of its results."""
    work = work or Work(Path("runs"), change=Substitutes(**substitutes).apply)
    if name in ALL.tables:
        return work, add_table(work, ALL.tables[name], printed_tables()[name], scale, only)
    return work, add_figure(work, name, ALL.figures[name], scale, only)


def jobs_of(name: str, *only: str, scale: Scale = "paper", **substitutes: Any) -> list[Any]:
    return list(declared(name, *only, scale=scale, **substitutes)[0].jobs.values())


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [*ALL.tables, *ALL.figures])
def test_jobs_are_made(name: str, scale: Scale) -> None:
    work, found = declared(name, scale=scale)
    assert found
    for results in found.values():
        assert all(path in work.jobs for path in results.directories.values())
    assert all(isinstance(job, Job) for job in work.jobs.values())


@pytest.mark.parametrize(
    "claim", [one for one in CLAIMS if isinstance(one, Claim)], ids=lambda claim: claim.id
)
def test_claims_are_tied_to_printed_rows(claim: Claim) -> None:
    printed = printed_tables()[claim.table]
    assert claim.metric in printed.metrics
    for where in (claim.ours, *claim.theirs):
        assert rows_of(where, printed, claim.metric)
    if claim.id != "ars/lambda-0.03":
        assert printed_effects(claim, printed)


def test_claims_have_ids_of_their_own() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS) > 50


HERE = Devices(1, 16e9, cpu=True)


def test_rewriters_learn_as_many_tokens_as_they_write() -> None:
    """RRR's 50 and ERRR's 128 at paper scale: the student's training, and the run that uses it."""
    jobs = jobs_of("errr/table3", "popqa", "trainable_rrr", "trainable_errr")
    students = [one for one in jobs if isinstance(one, TrainQueryOptimizer)]
    methods: list[Any] = [one.method for one in jobs if isinstance(one, Run)]
    writers = [getattr(method, "rewriter", None) or method.optimizer for method in methods]
    assert sorted(one.max_target for one in students) == [50, 128]
    assert sorted(one.tokens for one in writers) == [50, 128]
    # what ERRR's T5 reads holds 1,024 tokens of the reader, which are more of T5's
    read = [one.max_source for one in students] + [one.model.max_length for one in writers]
    assert {*read} == {2048}
    # a set has questions of equal texts, of which a held-out one would stop the training
    assert all(one.leakage == "drop" for one in students)


def test_the_local_setting_searches_the_published_vectors_and_needs_no_web(tmp_path: Path) -> None:
    jobs = jobs_of("errr/table3")
    runs = [one for job in jobs if isinstance(one := getattr(job, "run", job), Run)]
    indexes = [run.index for run in runs]
    assert {one for one in indexes if one} == {WikiDpr(exact=True)}
    assert "BRAVE_API_KEY" not in {key for job in jobs for key in key_variables(job)}
    training = next(job for job in jobs if isinstance(job, TrainRrr))
    found = problems({tmp_path / "ppo": training}, tmp_path, PUBLISHED, HERE)
    assert any("holds no complete import" in message for message in found)
    web = [job.run.index for job in jobs_of("errr/table2") if isinstance(job, TrainRrr)]
    assert {*web} == {Web()}
    # other passages have no published vectors
    [other, *_] = (
        job.run.index
        for job in jobs_of("errr/table3", corpus="psgs_w100-first1000")
        if isinstance(job, TrainRrr)
    )
    assert other == Exact(dpr(), metric="l2")


def test_ppo_trains_on_the_first_questions_of_a_training_split() -> None:
    """PopQA has no training split: 900 questions that are not evaluated, drawn at random."""
    jobs = [job for job in jobs_of("errr/table3") if isinstance(job, TrainRrr)]
    assert all(job.run.limit == 1000 and job.leakage == "drop" for job in jobs)
    data: list[Any] = [job.run.data for job in jobs]
    assert data[0] == Benchmark("ambigqa", "train", "psgs_w100") and data[1].train == 900
    assert requirements("ppo", jobs[0], PUBLISHED, HERE).questions == 1000


NAMES = [*dict.fromkeys(name for name in (*ALL.tables, *ALL.figures) if name.startswith("r3/"))]


def test_all_that_the_text_shows_is_named() -> None:
    named = {*NAMES, *(name for name in ALL.left_out if name.startswith("r3/"))}
    printed = {f"r3/table{n}" for n in range(1, 9)} | {f"r3/figure{n}" for n in range(1, 15)}
    assert named == printed | {"r3/appendix_h"}  # a statement without a table


def test_self_rag_reads_as_many_passages_as_its_row() -> None:
    """The rows over SiDR_MS with 1 and 10 passages; a small model reads a third, rounded up."""
    only = ("nq", "self_rag_llama3_8b_sidr")
    small = [job.method for job in jobs_of("r3/table1", *only, scale="small")]
    assert [(one.candidates.n, one.select.k) for one in small] == [(1, 1), (4, 4)]
    assert declared("r3/table1", *only)[1] == {}
    assert {job.index for job in jobs_of("r3/table1", "self_rag_llama2_7b")} == {
        Exact(contriever())
    }


def test_the_baselines_of_a_config_are_those_of_the_table() -> None:
    """Model, prompts, passages and retriever, with one passage; the table's run has a label."""
    work, rows = declared("r3/table1", "nq", "standard_rag_contriever_ms")
    printed = printed_tables()["r3/table1"].rows
    [made] = [one for (row, _), one in rows.items() if printed[row].passages == 1]
    of_table: Any = work.jobs[made.directories[JOB]]
    of_config: Any = r3.get_config("contriever_ms@paper-nq")
    for field in ("method", "model", "index"):
        assert getattr(of_config, field) == getattr(of_table, field)


def test_equal_trainings_are_one() -> None:
    """One training of PubHealth from SiDR_MS serves Tables 1, 2, 5, 7, and Figures 4, 5 and 7."""
    work, _ = declared("r3/table7", "pubhealth")
    declared("r3/table5", "pubhealth", work=work)
    for name in ("r3/figure4", "r3/figure5", "r3/figure7"):
        declared(name, work=work)
    trainings = [path.name for path in work.jobs if path.name.startswith("TrainR3-pubhealth")]
    # both, offline, online, KL; beta, re-indexed; sampling B and C
    assert len(trainings) == len(set(trainings)) == 8


def test_replug_is_trained_with_the_model_that_reads_and_mixes_at_the_same_temperature() -> None:
    work, found = declared("r3/table1", "replug", "arc_challenge")
    [path] = {results.directories[JOB] for results in found.values()}
    run: Any = work.jobs[path]
    [training] = (work.jobs[one] for one in work.needs[path] if "TrainR3" in one.name)
    job: Any = training
    assert run.model == job.model and run.model.checkpoint == "hub:meta-llama/Llama-2-7b-hf"
    assert run.method.temperature == job.training.update.temperature == 25


def test_periodic_re_indexing_begins_with_dpr_trained_on_ms_marco() -> None:
    work, found = declared("r3/figure5", "nq")
    [results] = found.values()
    job: Any = work.jobs[results.directories["w/o semi-para"]]
    [before] = (work.jobs[path] for path in work.needs[results.directories["w/o semi-para"]])
    assert isinstance(job.start, Dpr) and (job.search, job.reindex_epochs) == ("reindexed", 15)
    other: Any = r3.get_config("train_r3_from_dpr@paper-pubhealth")
    for questions in (1119, 8079, 79_168):  # ARC-Challenge, PubHealth, NQ
        for made in (job, other):
            every = made.steps_between_indexings(questions)
            steps = made.training.steps_over(questions)
            online = [at for at in range(steps) if made.training.is_online(at, steps)]
            assert len(range(online[0], steps, every)) == 3
    assert isinstance(before, TrainDpr) and before.data[0] == training_of("msmarco")[0]


def test_relevance_and_answer_probability_order_the_same_passages_of_the_same_questions() -> None:
    runs = [job for job in jobs_of("r3/table6", "nq") if isinstance(job, Run)]
    assert {run.method.name for run in runs} == {"r3", "answer_probability"}
    for run in runs:
        data, index = run.data, run.index
        assert isinstance(data, Draw) and (data.part, data.train, run.limit) == ("train", 1000, 0)
        assert isinstance(index, Sidr) and (index.search, index.m) == ("late", 100)


def test_progress_counts_the_on_policy_phase() -> None:
    rows = printed_tables()["r3/table7"].rows
    assert [share_of(row) for row in rows[:5]] == [0.5, 0.625, 0.75, 0.875, 1.0]
    assert share_of(printed_tables()["r3/table5"].rows[0]) == 1.0


BASELINES = ("no_retrieval", "standard_rag", "rerank", "hyde", "q2d", "cot", "dpr_ais")


@pytest.mark.parametrize("method", BASELINES)
def test_baselines_have_the_prompts_of_their_paper(method: str) -> None:
    for config, prompts in ((pairs, "pairs"), (dtr, "dtr")):
        job: Any = config.get_config(f"{method}@paper-hotpotqa")
        assert job.method.reader.prompts == prompts
        assert job.method.reader.passage_tokens == 1024  # or a rationale loses its answer


def test_rows_read_as_many_passages_as_printed() -> None:
    for job in jobs_of("pairs/table7"):
        assert job.method.select.k == 5
    for job in jobs_of("dtr/table6"):
        assert job.method.name == "no_retrieval" or job.method.select.k == 5
    for job in jobs_of("pairs/table3"):
        mixed = isinstance(job.method.candidates, FixedMix)
        assert job.method.select.k == 3 and (not mixed or job.method.candidates.from_query < 3)
    for table in ("pairs/table3", "dtr/table3"):  # rows beside mixes of three, at every scale
        assert {job.method.select.k for job in jobs_of(table, scale="small")} == {3}
    assert all(job.method.select.k == 3 for job in jobs_of("dtr/table4", scale="small"))


def test_curves_need_a_run_without_and_one_with_retrieval_of_each_size() -> None:
    found = {(job.method.name, job.model.checkpoint) for job in jobs_of("dtr/figure17")}
    sizes = [f"hub:Qwen/Qwen2.5-{size}-Instruct" for size in ("7B", "32B", "72B")]
    assert found == {(name, size) for name in ("no_retrieval", "dtr") for size in sizes}


def test_alpha_is_fitted_on_five_thousand_training_questions() -> None:
    (job,) = jobs_of("pairs/figure10")
    data = job.run.data
    assert isinstance(data, Draw) and (data.train, data.test, data.part) == (5000, 0, "train")
    source: Any = data.source
    assert (source.name, source.split) == ("hotpotqa", "train")
    (other,) = jobs_of("dtr/figure7")
    assert other.run.method.reader.prompts == "dtr" and job.run.method.reader.prompts == "pairs"


@pytest.mark.parametrize("dataset, value", [("nq", 0.5), ("hotpotqa", 1.0)])
def test_f1_is_the_mean_over_aliases_where_the_paper_prints_that(
    dataset: str, value: float, tmp_path: Path
) -> None:
    # one question with the aliases Lima and Oslo, answered by Lima: mean 1 / 2, best 1
    write(tmp_path / "run", "1", aliases=("Lima", "Oslo"), dataset=dataset)
    results = {(0, f"paper-{dataset}"): Results({JOB: tmp_path / "run"})}
    printed = printed_tables()["pairs/table2"]
    cells = table_cells(TABLES["pairs/table2"], printed, "paper", results)
    (f1,) = (cell for cell in cells if cell.metric == "F1" and cell.ours)
    assert f1.ours is not None and f1.ours.interval.mean == value
