"""The list of all tables and figures, with their state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.json_text import read_json_object
from jaxrag.evaluation.report.tables import Grid
from jaxrag.reproduction.printed.tables import PAPERS, printed_tables
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
    """The record of a reproduced table or figure; InputError if the file is damaged."""
    way_out = "remove it, and make the table or figure again"
    record = read_json_object(file, what="the record of a table or figure", way_out=way_out)
    if not all(isinstance(record.get(name), str) for name in ("name", "scale", "date")):
        raise InputError(f"{file} lacks the name, scale or date of a table or figure: {way_out}.")
    parts: Any = record.get("parts", [])
    if not isinstance(parts, list) or not all(isinstance(part, list) for part in parts):
        raise InputError(f'"parts" in {file} must be a list of lists of names: {way_out}.')
    return record


def listing(
    declared: Declarations, directories: Sequence[Path], papers: Sequence[str] = PAPERS
) -> Iterator[Grid]:
    """A grid for each paper: its tables and figures, their printed values, and what was made."""
    for paper in papers:
        names = [name for name in all_names(declared) if name.startswith(f"{paper}/")]
        rows = [
            (name, _number([name]), subject(name, declared), _state(name, declared, directories))
            for name in names
            if name not in declared.left_out
        ]
        if out := [name for name in names if name in declared.left_out]:
            reasons = by_reason((name.partition("/")[2], declared.left_out[name]) for name in out)
            rows.append(("not made", _number(out), "; ".join(reasons), ""))
        yield Grid((paper, f"{_number(names)} values", "what it is", "made"), rows)


def _number(names: Sequence[str]) -> str:
    """Number of printed values of some tables and figures; "" for 0."""
    tables = printed_tables()
    count = sum(tables[name].count for name in names if name in tables)
    return f"{count:,}" if count else ""


def by_reason(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Names that lack something, and why: a text for each reason."""
    names: dict[str, dict[str, None]] = {}
    for name, reason in pairs:
        names.setdefault(reason, {})[name] = None
    return [f"{', '.join(some)}: {reason}" for reason, some in names.items()]


def all_names(declared: Declarations) -> list[str]:
    """Ids of all tables and figures, printed or declared: by paper, tables first, by number."""

    def order(name: str) -> tuple[int, bool, int]:
        paper, _, rest = name.partition("/")
        digits = "".join(filter(str.isdigit, rest))
        return PAPERS.index(paper), not rest.startswith("table"), int(digits or 0)

    names = {*printed_tables(), *declared.tables, *declared.figures, *declared.left_out}
    return sorted(names, key=order)


def subject(name: str, declared: Declarations) -> str:
    """What a table or figure shows; "" if it is not declared."""
    if name in declared.figures:
        return declared.figures[name].title
    printed = printed_tables().get(name)
    return printed.caption if printed else ""


def _state(name: str, declared: Declarations, directories: Sequence[Path]) -> str:
    """What was made of it, when, and in how many minutes; what cannot be."""
    files = result_files(directories, name).items()
    text = "; ".join(_made(folder, read_result(file)) for folder, file in files) or "not yet"
    table = declared.tables.get(name)
    if table is None:
        return text if name in declared.figures else "not declared"
    rows = [r for r in printed_tables()[name].rows if table.without(r.method, "paper")]
    if rows:
        reasons = dict.fromkeys(table.without(row.method, "paper") for row in rows)
        text += f"; {sum(row.count for row in rows)} values are not: {'; '.join(reasons)}"
    return text


def _made(folder: str, record: Mapping[str, Any]) -> str:
    """A record's folder, date and minutes, which earlier versions did not record."""
    seconds = record.get("seconds")
    timed = isinstance(seconds, (int, float))
    minutes = f"{seconds / 60:.1f} minutes" if timed else "minutes unknown"
    return f"{folder} on {record['date']}, {minutes}"


def parts_of(record: Mapping[str, Any]) -> list[list[str]]:
    """What ``--only`` named when each part of a record was made; [[]] if it is whole."""
    return record.get("parts") or [record.get("only") or []]


def parts_text(record: Mapping[str, Any]) -> str:
    """How the parts of a record were made; empty if it is whole."""
    parts = parts_of(record)
    if [] in parts:
        return ""
    flags = (f"--only={','.join(part)}" for part in parts)
    return f"Made with {', then with '.join(flags)}."
