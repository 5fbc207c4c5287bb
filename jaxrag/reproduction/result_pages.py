"""A page a paper with the tables and figures that were made, each cell with what it came from."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.durable_files import write_text
from jaxrag.core.printable import html_text, markdown_text
from jaxrag.evaluation.summary import shown_name
from jaxrag.reproduction import page
from jaxrag.reproduction.cells import read_cells
from jaxrag.reproduction.claims import Claim, FigureClaim
from jaxrag.reproduction.claims_page import comparison_text, judge
from jaxrag.reproduction.listing import all_names, parts_text, read_result, result_files, subject
from jaxrag.reproduction.printed.comparison import (
    Cell,
    metric_label,
    our_text,
    printed_text,
    row_label,
)
from jaxrag.reproduction.printed.tables import AVERAGE, PAPERS, PrintedTable, printed_tables
from jaxrag.reproduction.tables import Declarations
from jaxrag.types import InputError

_HEAD = """# {paper}: results

Made by `jaxrag reproduce --pages=docs/results`. A cell has our value; it opens to its interval, the
comparisons of the paper's claims, what it was measured with, minutes (stored answers take none),
its command, and the record with values of single questions. What was not run is empty.
"""


def write_pages(
    declared: Declarations, claims: Sequence[Claim | FigureClaim], workdir: Path, directory: Path
) -> list[Path]:
    """Writes "PAPER.md" for each paper into a directory; returns the files.

    Records and pictures are copied there, to the folder of their name: the scale, and the reader if
    it is another. Tables that are not in ``workdir`` but have a record there stay on the pages.
    InputError if a record is damaged, a picture is missing, or the disk is full.
    """
    pages = []
    for paper in PAPERS:
        names = [name for name in all_names(declared) if name.startswith(f"{paper}/")]
        title = next(t.paper for i, t in printed_tables().items() if i.startswith(paper))
        parts, missing = [_HEAD.format(paper=title)], []
        for name in names:
            files = result_files((workdir, directory), name).values()
            about = filter(None, (_number(name), subject(name, declared)))
            parts += [f"## {': '.join(about)}\n"] if files else []
            parts += [_part(declared, claims, name, file, directory) for file in files]
            missing += [] if files or name in declared.left_out else [_number(name)]
        parts += [f"Not made yet: {', '.join(missing)}.\n"] if missing else []
        pages.append(directory / f"{paper}.md")
        directory.mkdir(parents=True, exist_ok=True)
        write_text(pages[-1], "\n".join(parts))
    return pages


def _number(name: str) -> str:
    """ "Table 2" of "dtr/table2"."""
    text = name.partition("/")[2].replace("_", " ").capitalize()
    return text.replace("Table", "Table ").replace("Figure", "Figure ")


def _part(
    declared: Declarations,
    claims: Sequence[Claim | FigureClaim],
    name: str,
    file: Path,
    directory: Path,
) -> str:
    """A record's facts, table and pictures as Markdown; copies it."""
    record, folder = read_result(file), directory / file.parent.name
    if record["name"] != name or folder.name.partition("-")[0] != record["scale"]:
        raise InputError(
            f"{file} is the record of {record['name']} at scale {record['scale']}: move it to its "
            f"own place, or make {name} again."
        )
    folder.mkdir(parents=True, exist_ok=True)
    copied = json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"
    write_text(folder / file.name, copied)
    cells = read_cells(record, file)
    parts = [_facts(declared, name, cells, record, f"{folder.name}/{file.name}")]
    if cells:
        try:
            parts.append(_matrix(cells, printed_tables()[name], claims, record, file))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{file} does not fit the table {name} ({error!r}): make the table again."
            ) from error
    for picture in record.get("pictures", ()):
        source = file.with_name(f"{picture.replace('/', '-')}.svg")
        if not source.is_file():
            raise InputError(f"{source} is not there: make {name} again.")
        write_text(folder / source.name, source.read_text(encoding="utf-8"))
        parts.append(f"![{picture}]({folder.name}/{source.name})\n")
    return "\n".join(parts)


def _facts(
    declared: Declarations,
    name: str,
    cells: Sequence[Cell],
    record: Mapping[str, Any],
    address: str,
) -> str:
    """Setting, date and machine of a record, what was left out, and a link to it."""
    models = ", ".join(map(shown_name, record.get("models", ())))
    facts = page.facts(record)
    first = [page.setting_text(record), f"Reader: {models}" if models else "", record["date"]]
    told = [f"{key}: {value}" for key, value in facts.items() if key != "Date"]
    told.append(parts_text(record))
    printed = printed_tables().get(name)
    if printed and cells:
        declaration, scale = declared.tables[name], record["scale"]
        reasons = page.left_out(declaration, printed, scale)
        told += [*(f"Not reproduced: {reason}" for reason in reasons), *declaration.notes]
        run = {cell.row for cell in cells if cell.interval}
        rows = (row for n, row in enumerate(printed.rows) if n not in run)
        lacking = [row_label(r, printed) for r in rows if not declaration.without(r.method, scale)]
        told.append(f"Not run: {'; '.join(lacking)}" if lacking else "")
    texts = ". ".join(markdown_text(text) for text in first if text)
    suffix = "" if cells else f" `{record.get('command', '')}`"
    head = f"**{markdown_text(address.partition('/')[0])}**: {texts}. [Record]({address}){suffix}\n"
    more = [html_text(text) for text in told if text]
    return f"{head}\n{page.opening('machine, settings, and what was not run', more)}\n"


def _matrix(
    cells: Sequence[Cell],
    printed: PrintedTable,
    claims: Sequence[Claim | FigureClaim],
    record: Mapping[str, Any],
    file: Path,
) -> str:
    """A table whose cells open: rows of the paper, columns of data sets."""
    rows = page.shown_rows(cells, printed)
    compared: dict[Any, list[str]] = {}
    for c in (c for judged in judge(claims, record, file) for c in judged.comparisons if c.ours):
        compared.setdefault(c.cell, []).append(comparison_text(c, record))
    columns = page.columns_of(rows.cells)
    heads, by_column = [""], []
    for column in columns:
        own = {cell.metric for cell in rows.cells if cell.column == column}
        metrics = [metric for metric in printed.metrics if metric in own]
        by_column.append(metrics if len(metrics) < 3 else metrics[:1])
        labels = " / ".join(metric_label(metric, printed) for metric in by_column[-1])
        heads.append(f"{html_text(column.heading)}<br>{html_text(labels)}")
    lines = []
    for number, label in rows.labels.items():
        line = [html_text(label)]
        for column, metrics in zip(columns, by_column, strict=True):
            own = [c for c in rows.cells if (c.row, c.column) == (number, column) and c.interval]
            values = [our_text(cell)[0] for cell in own if cell.metric in metrics]
            facts = list(_details(own, printed, compared, record, file))
            line.append(page.opening("\u00a0/\u00a0".join(values) or "more", facts) if own else "")
        lines.append(line)
    return page.html_table(heads, lines)


def _details(
    cells: Sequence[Cell],
    printed: PrintedTable,
    compared: Mapping[Any, Sequence[str]],
    record: Mapping[str, Any],
    file: Path,
) -> Iterator[str]:
    """The lines to which the cell of a row and column opens."""
    for cell in cells:
        assert cell.interval is not None
        value = " ".join(filter(None, our_text(cell)))
        text = f"{metric_label(cell.metric, printed)}: {value}, n = {cell.interval.n:,}"
        yield html_text(", ".join(filter(None, (text, printed_text(cell)))))
        yield from compared.get((cell.row, cell.column.data, cell.metric), ())
    for cell in cells[:1]:
        models = (cell.model, cell.retriever, cell.setting)
        yield html_text("; ".join(filter(None, models)))
        if cell.seconds:
            yield f"{cell.seconds / 60:.1f} minutes"
        yield f"<code>{html_text(command(cell, printed, record))}</code>"
        yield page.link("record", f"{file.parent.name}/{file.name}")


def command(cell: Cell, printed: PrintedTable, record: Mapping[str, Any]) -> str:
    """The command that makes the cells of a row and column."""
    row = printed.rows[cell.row]
    parts = [row.method, *([] if cell.column.data == AVERAGE else cell.column.datasets[:1])]
    same = [other for other in printed.rows if other.method == row.method]
    for name in ("generator", "retriever"):
        if len({getattr(other, name) for other in same}) > 1 and getattr(row, name):
            parts.append(getattr(row, name))
    only = shlex.quote(",".join(filter(None, parts)))
    return f"{record.get('command', '')} --only={only}".strip()
