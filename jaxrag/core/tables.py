"""Tables of tab-separated columns: rows as records whose errors name file, line and column."""

from __future__ import annotations

import codecs
import csv
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jaxrag.core.json_text import first_twice
from jaxrag.core.jsonl_input import InputLine
from jaxrag.core.packed_files import LONGEST, count_lines, open_packed, open_published
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")


def read_table(
    path: Path,
    *,
    columns: Sequence[str] = (),
    header: Sequence[str] = (),
    separator: str = "\t",
    quoted: bool = False,
    ragged: bool = False,
    member: str = "",
) -> Iterator[InputLine]:
    """The rows of a table, which may be packed, as records of strings. Blank lines are skipped.

    Args:
      path: the file.
      columns: names of the columns of a file without a header line; () for one with a header.
      header: columns that the header line must have.
      separator: between columns; " " stands for any run of spaces and tabs.
      quoted: cells may be quoted as CSV writers do; otherwise a quote is a character.
      ragged: for files that are published with damaged rows: a row with another number of columns
        is left out, which a warning counts, and quotes may be unbalanced.
      member: the path may also be that of an archive that has the table under this name.

    InputError if the header lacks a column, a row has another number of columns, a cell is not
    UTF-8, a quote is not closed, or the packed file is damaged.
    """
    with open_published(path, member) if member else open_packed(path) as stream:
        lines = _decoded(path, stream)
        if quoted:
            rows = _quoted_rows(path, lines, separator, strict=not ragged)
        else:
            rows = _plain_rows(lines, separator)
        names, left_out = list(columns), []
        for number, cells in rows:
            if not names:
                names = _header(path, number, cells, header)
                continue
            if len(cells) != len(names) and ragged:
                left_out.append(number)
            elif len(cells) != len(names):
                raise InputError(
                    f"{path}, line {number}: {len(cells)} columns; {len(names)} are needed "
                    f"({', '.join(names)})"
                )
            else:
                yield InputLine(path, number, dict(zip(names, cells, strict=True)))
        if not names and header:
            raise InputError(f"{path} is empty; a header line with {', '.join(header)} is needed")
        if left_out:
            text = f"{len(left_out)} rows that have not {len(names)} columns"
            _log.warning("%s: left out %s; the first is on line %d", path, text, left_out[0])


def _header(path: Path, number: int, cells: list[str], needed: Sequence[str]) -> list[str]:
    if not {*needed} <= {*cells}:
        raise InputError(
            f"{path}, line {number} is {' | '.join(cells)[:80]!r}; a header line with the columns "
            f"{', '.join(needed)} is needed before the rows"
        )
    if (twice := first_twice(cells)) is not None:
        raise InputError(f"{path}, line {number}: column {twice!r} occurs twice in the header")
    return cells


def _decoded(path: Path, stream: Iterable[bytes]) -> Iterator[str]:
    for number, raw in count_lines(path, stream):
        try:
            yield raw.removeprefix(codecs.BOM_UTF8 if number == 1 else b"").decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {number}: not UTF-8 ({error.reason}): save it as UTF-8"
            ) from None


def _plain_rows(lines: Iterator[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    split = None if separator == " " else separator
    for number, line in enumerate(lines, 1):
        if line.strip("\r\n"):
            yield number, line.rstrip("\r\n").split(split)


def _quoted_rows(
    path: Path, lines: Iterator[str], separator: str, *, strict: bool
) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line on which each begins."""
    csv.field_size_limit(LONGEST)  # characters, over several lines where a quote is not closed
    reader = csv.reader(lines, delimiter=separator, strict=strict)
    start = 1
    try:
        for cells in reader:
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}, line {start}: not a row in CSV quoting ({error}); a quote inside a quoted "
            "cell must be doubled"
        ) from None
