"""A report puts each run of a reproduced table beside the row that the run was made for."""

from pathlib import Path
from typing import Any

import pytest

from configs.papers import ALL
from jaxrag.data.dataset import Dataset
from jaxrag.methods.r3.jobs import RETRIEVER
from jaxrag.reproduction.measures import JOB
from jaxrag.reproduction.printed.matches import matches
from jaxrag.reproduction.printed.models import TRAINED
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.reproduction.work import Work, add_table
from jaxrag.runs.run import Run
from jaxrag.runs.run_record import settings_record

LEFT_OUT = {
    *("pairs/table8", "pairs/figure10", "r3/table2", "errr/table4", "ars/table3", "ars/figure4"),
    *("r3/table5", "r3_from_sidr_ms", "r3_from_sidr_nq", "any_retriever_upper_bound"),
    "adaptive_rag",
}
"""Tables and methods whose values are no means over all answers of a run, and rows that differ only
in a training, of which a run's config knows nothing, or whose printed model is not ours."""

OTHER_PAPERS = {"ircot", "dragin", "seakr", "flare", "self_rag_llama2_7b"}
"""Methods of other papers in R3's and ARS-RAG's tables: configs keep their own passages, and the
report names them."""


def record(run: Run, dataset: str) -> dict[str, Any]:
    """The config of a run at paper scale, whose cross encoder has been loaded."""
    passages: Any = ()
    found = settings_record(run, Dataset(dataset, (), passages, {}, ""), ())
    if found["reranker"] is not None:
        found["reranker"] = {"cross_encoder": {}}
    return found


@pytest.mark.parametrize("name", sorted({*ALL.tables} - LEFT_OUT))
def test_runs_at_paper_scale_stand_beside_their_rows(name: str, tmp_path: Path) -> None:
    table, printed, work = ALL.tables[name], printed_tables()[name], Work(tmp_path)
    for (number, data), results in add_table(work, table, printed, "paper").items():
        run, row = work.jobs[results.directories[JOB]], printed.rows[number]
        if row.method in LEFT_OUT:
            continue
        assert isinstance(run, Run)
        found = matches(record(run, data.removeprefix("paper-")))
        (own,) = (one for one in found if one.table.id == name)
        assert own.row.method == row.method, (row, run.name)
        if row.method in OTHER_PAPERS:
            continue
        assert (own.row.generator, own.row.passages) == (row.generator, row.passages)
        assert own.row.other.get("progress_percent") == row.other.get("progress_percent")
        assert not own.differs, (row, run.name)


def test_a_trained_retriever_is_known_by_the_name_of_its_file() -> None:
    assert TRAINED == RETRIEVER
