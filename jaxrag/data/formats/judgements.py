"""Queries and relevance judgements: the forms of TREC, MS MARCO and BEIR.

Sources: https://trec.nist.gov/data/qrels_eng; Bajaj et al., MS MARCO, 2016; Thakur et al., BEIR,
NeurIPS 2021. Sets in these forms have no answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from jaxrag.core.jsonl_input import InputLine, read_input
from jaxrag.core.tables import read_table
from jaxrag.data.dataset import GoldPassage, SetRow
from jaxrag.types import InputError, Question

Judgements = Mapping[str, tuple[GoldPassage, ...]]
"""Judged passages by query id."""

_BEIR = ("query-id", "corpus-id", "score")
_QUOTED = re.compile('"(?:[^"]|"")*"')


def read_trec_judgements(path: Path, *, corpus: str = "") -> Judgements:
    """Judgements in TREC's form: query, 0, passage, grade, between tabs or spaces.

    Grades below 0, which some tracks use for spam, are kept as 0: not relevant. InputError if a
    line has not four columns, a grade is no number, or a pair has two grades.
    """
    rows = read_table(path, columns=("query", "iteration", "passage", "grade"), separator=" ")
    return _by_query(rows, "query", "passage", "grade", corpus)


def read_beir_judgements(path: Path, *, corpus: str = "") -> Judgements:
    """Judgements in BEIR's table, whose header is query-id, corpus-id, score; else InputError.

    A cell in quotes, in which quotes are doubled, is read as in CSV; other quotes are characters.
    """
    rows = read_table(path, header=_BEIR)
    plain = (row._replace(fields={n: _plain(c) for n, c in row.fields.items()}) for row in rows)
    return _by_query(plain, *_BEIR, corpus)


def _plain(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if _QUOTED.fullmatch(cell) else cell


def read_queries(path: Path, judgements: Judgements, judged_in: Path) -> Iterator[SetRow]:
    """The judged queries of a table (id, tab, text) in its order; ``judged_in`` is for errors.

    InputError if a row has not two columns, an id occurs twice, or a judged query is not there.
    """
    rows = read_table(path, columns=("id", "text"))
    queries = ((row, row.string("id"), row.string("text")) for row in rows)
    yield from _judged(queries, path, judgements, judged_in)


def read_beir_queries(path: Path, judgements: Judgements, judged_in: Path) -> Iterator[SetRow]:
    """The judged queries of BEIR's queries.jsonl (``_id``, ``text``); see `read_queries`."""
    queries = ((line, line.identifier("_id"), line.string("text")) for line in read_input(path))
    yield from _judged(queries, path, judgements, judged_in)


def _by_query(
    rows: Iterator[InputLine], query: str, passage: str, grade: str, corpus: str
) -> Judgements:
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        of_query = found.setdefault(row.string(query), {})
        name, value = row.string(passage), max(0, row.integer(grade))
        if of_query.setdefault(name, value) != value:
            raise row.error(
                grade,
                f"is {value}, but passage {name!r} of query {row.string(query)!r} has "
                f"{of_query[name]} on an earlier line",
            )
    return {
        name: tuple(GoldPassage(one, corpus, value) for one, value in judged.items())
        for name, judged in found.items()
    }


def _judged(
    queries: Iterator[tuple[InputLine, str, str]],
    path: Path,
    judgements: Judgements,
    judged_in: Path,
) -> Iterator[SetRow]:
    seen = set()
    for row, name, text in queries:
        if name in seen:
            field = "_id" if "_id" in row.fields else "id"
            raise row.error(field, f"{name!r} is the id of an earlier {row.unit} too")
        seen.add(name)
        if name in judgements:
            yield SetRow(Question(name, text, ()), judgements[name])
    if unknown := [name for name in judgements if name not in seen]:
        raise InputError(
            f"{judged_in}: query {unknown[0]!r} ({len(unknown)} in all) is not in {path}"
        )
