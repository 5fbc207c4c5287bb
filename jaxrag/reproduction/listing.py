"""The list of all tables and figures, with their state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.json_text import read_json_object
from jaxrag.evaluation.report.tables import Grid
from jaxrag.reproduction.printed.tables import PAPERS, PrintedRow, PrintedTable, printed_tables
from jaxrag.reproduction.tables import Declarations
from jaxrag.types import InputError


def result_file(workdir: Path, folder: str, name: str, ending: str) -> Path:
    """File of a reproduced table or figure; ``folder`` is the scale, and the reader if another."""
    return workdir / folder / f"{name.replace('/', '-')}.{ending}"


def result_files(directories: Sequence[Path], name: str) -> dict[str, Path]:
    """The records of a table or figure by folder, each from the first directory that has it."""
    files: dict[str, Path] = {}
    for directory in directories:
        for file in sorted(directory.glob(f"*/{name.replace('/', '-')}.json")):
            files.setdefault(file.parent.name, file)
    return files


def read_result(file: Path) -> dict[str, Any]:
    """The record of a reproduced table or figure.

    Raises:
      InputError: the file is damaged.
    """
    way_out = "remove it, and make the table or figure again"
    record = read_json_object(file, what="the record of a table or figure", way_out=way_out)
    if not all(isinstance(record.get(name), str) for name in ("name", "scale", "date")):
        raise InputError(f"{file} lacks the name, scale or date of a table or figure: {way_out}.")
    return record


def listing(
    declared: Declarations,
    directories: Sequence[Path],
    missing: Callable[[str], Collection[str]] = lambda name: (),
) -> Grid:
    """All tables and figures: number of printed values, where they run, and when they were made.

    A record is named by its folder, which is the scale, and the reader if it is another.

    Args:
      declared: the tables and figures.
      directories: with records, the first one that has a table's counts.
      missing: id -> environment variables that its jobs at paper scale need and that are not set.
    """
    lines, total = [], 0
    for name in all_names(declared):
        printed = printed_tables().get(name)
        count = printed.count if printed else 0
        total += count
        state = _state(name, declared, directories, missing)
        lines.append((name, f"{count:,}" if count else "", _subject(name, declared), state))
    lines.append(("all", f"{total:,}", "", ""))
    return Grid(("table or figure", "values", "subject", "state"), lines)


def all_names(declared: Declarations) -> list[str]:
    """Ids of all tables and figures, printed or declared: by paper, tables first, by number."""

    def order(name: str) -> tuple[int, bool, int]:
        paper, _, rest = name.partition("/")
        digits = "".join(filter(str.isdigit, rest))
        return PAPERS.index(paper), not rest.startswith("table"), int(digits or 0)

    names = {*printed_tables(), *declared.tables, *declared.figures, *declared.left_out}
    return sorted(names, key=order)


def _subject(name: str, declared: Declarations) -> str:
    if name in declared.figures:
        return declared.figures[name].title
    printed = printed_tables().get(name)
    return printed.caption if printed else ""


def _state(
    name: str,
    declared: Declarations,
    directories: Sequence[Path],
    missing: Callable[[str], Collection[str]],
) -> str:
    """Why it is not made; or at which scales it runs, what of it, and when it was measured."""
    if name in declared.left_out:
        return f"not made: {declared.left_out[name]}"
    if keys := missing(name):
        text = f"runnable at tiny and small; paper needs ${' and $'.join(keys)}"
    else:
        text = "runnable at tiny, small and paper"
    files = result_files(directories, name).items()
    if parts := [f"{folder} on {read_result(file)['date']}" for folder, file in files]:
        text += f"; measured at {', '.join(parts)}"
    table = declared.tables.get(name)
    if table is None:
        return text if name in declared.figures else "not declared"
    reasons = (
        table.reason(row, metric, "paper") for row, metric in values_of(printed_tables()[name])
    )
    lacking = [reason for reason in reasons if reason]
    if lacking:
        text += f"; {len(lacking)} values are not: {'; '.join(dict.fromkeys(lacking))}"
    return text


def values_of(printed: PrintedTable) -> Iterator[tuple[PrintedRow, str]]:
    """Row and metric of every printed value."""
    for row in printed.rows:
        for cells in row.values.values():
            yield from ((row, metric) for metric in cells)
