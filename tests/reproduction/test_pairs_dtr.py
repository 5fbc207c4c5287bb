"""What PAIRS' and DTR's declarations run, at paper scale, without loading anything."""

from pathlib import Path
from typing import Any

import pytest

from jaxrag.configs import dtr, pairs
from jaxrag.configs.papers import ALL
from jaxrag.configs.papers.pairs import TABLES
from jaxrag.data.draw import Draw
from jaxrag.reproduction.cells import table_cells
from jaxrag.reproduction.measures import JOB, Results
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.reproduction.work import Work, add_figure, add_table
from jaxrag.steps.candidates import FixedMix
from tests.reproduction.test_gate_figures import write

BASELINES = ("no_retrieval", "standard_rag", "rerank", "hyde", "q2d", "cot", "dpr_ais")


def runs(name: str, scale: Any = "paper") -> list[Any]:
    work = Work(Path("runs"))
    if name in ALL.tables:
        add_table(work, ALL.tables[name], printed_tables()[name], scale)
    else:
        add_figure(work, name, ALL.figures[name], scale)
    return list(work.jobs.values())


@pytest.mark.parametrize("method", BASELINES)
def test_baselines_have_the_prompts_of_their_paper(method: str) -> None:
    for config, prompts in ((pairs, "pairs"), (dtr, "dtr")):
        job: Any = config.get_config(f"{method}@paper-hotpotqa")
        assert job.method.reader.prompts == prompts
        assert job.method.reader.passage_tokens == 1024  # or a rationale loses its answer


def test_rows_read_as_many_passages_as_printed() -> None:
    for job in runs("pairs/table7"):
        assert job.method.select.k == 5
    for job in runs("dtr/table6"):
        assert job.method.name == "no_retrieval" or job.method.select.k == 5
    for job in runs("pairs/table3"):
        mixed = isinstance(job.method.candidates, FixedMix)
        assert job.method.select.k == 3 and (not mixed or job.method.candidates.from_query < 3)
    for table in ("pairs/table3", "dtr/table3"):  # rows beside mixes of three, at every scale
        assert {job.method.select.k for job in runs(table, "small")} == {3}
    assert all(job.method.select.k == 3 for job in runs("dtr/table4", "small"))


def test_curves_need_a_run_without_and_one_with_retrieval_of_each_size() -> None:
    found = {(job.method.name, job.model.checkpoint) for job in runs("dtr/figure17")}
    sizes = [f"hub:Qwen/Qwen2.5-{size}-Instruct" for size in ("7B", "32B", "72B")]
    assert found == {(name, size) for name in ("no_retrieval", "dtr") for size in sizes}


def test_alpha_is_fitted_on_five_thousand_training_questions() -> None:
    (job,) = runs("pairs/figure10")
    data = job.run.data
    assert isinstance(data, Draw) and (data.train, data.test, data.part) == (5000, 0, "train")
    source: Any = data.source
    assert (source.name, source.split) == ("hotpotqa", "train")
    (other,) = runs("dtr/figure7")
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
