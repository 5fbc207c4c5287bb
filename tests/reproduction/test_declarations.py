"""The declared tables of the papers fit the printed ones, and make their jobs at every scale."""

from pathlib import Path

import pytest

from jaxrag.configs.papers import ALL
from jaxrag.configs.papers.claims import CLAIMS
from jaxrag.reproduction.claims import Claim, printed_effects, rows_of
from jaxrag.reproduction.printed.comparison import MEAN_OF_ALL
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.reproduction.tables import SCALES, Scale
from jaxrag.reproduction.work import Work, add_figure, add_table
from jaxrag.runs.job import Job


@pytest.mark.parametrize("name", ALL.tables)
def test_every_printed_value_has_a_measure_or_a_reason(name: str) -> None:
    table, printed = ALL.tables[name], printed_tables()[name]
    values = ((row, m) for row in printed.rows for own in row.values.values() for m in own)
    for row, metric in values:
        if table.without(row.method, "paper") or metric == MEAN_OF_ALL:
            continue
        declared = {**table.measures, **table.lines[row.method].measures}
        known = printed.metric_of(metric) or metric in {**declared, **printed.differences}
        assert known, (row.method, metric)


@pytest.mark.parametrize("name", ALL.tables)
def test_every_row_has_a_line_or_a_reason(name: str) -> None:
    table, methods = ALL.tables[name], {row.method for row in printed_tables()[name].rows}
    assert methods <= {*table.lines, *table.left_out}
    assert not set(table.lines) & set(table.left_out)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [*ALL.tables, *ALL.figures])
def test_jobs_are_made(name: str, scale: Scale, tmp_path: Path) -> None:
    work = Work(tmp_path)
    if name in ALL.tables:
        table = ALL.tables[name]
        found = list(add_table(work, table, printed_tables()[name], scale).values())
    else:
        found = list(add_figure(work, name, ALL.figures[name], scale).values())
    assert found
    for results in found:
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
