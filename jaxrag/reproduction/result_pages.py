"""Pages of the tables that were made, one a paper, with the records that claims are judged by."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.durable_files import write_text
from jaxrag.reproduction import page
from jaxrag.reproduction.cells import read_cells
from jaxrag.reproduction.listing import all_names, read_result, result_file
from jaxrag.reproduction.page import NOTE
from jaxrag.reproduction.parts import parts_text
from jaxrag.reproduction.printed.models import shown_name
from jaxrag.reproduction.printed.tables import PAPERS, printed_tables
from jaxrag.reproduction.tables import SCALES, Declarations
from jaxrag.types import InputError

_HEAD = """# {paper}: reproduced tables

Made by `python -m experiments.reproduce --pages=docs/results` from the results in its `--workdir`
and from the records that were already in the folders of the scales, which hold all cells and
pictures. At the scales small and tiny, SmolLM2-135M-Instruct and all-MiniLM-L6-v2 replace the
paper's models, folders of questions, or the factbook, replace its data, and a third of its passages
are read (1 of 3, 2 of 5, 4 of 10): these values test the code and show what it costs; they say
nothing about the printed numbers, which therefore do not stand beside them. At the scale tiny, 4 to
12 questions are answered and models are trained for a few steps, which only shows that the code
makes the whole table; a table is shown at this scale if it has no result at another.

{note}
"""


def write_pages(declared: Declarations, workdir: Path, directory: Path) -> list[Path]:
    """Writes "reproduced_PAPER.md" for each paper of which tables or figures were made.

    The records, as JSON, and the pictures are copied to a folder for each scale. Tables that are
    not in ``workdir`` but have a record in these folders stay on the pages. The scale tiny is shown
    only for tables without a result at another scale.

    Args:
      declared: all tables and figures.
      workdir: of the command that made them.
      directory: of the pages; created if missing.

    Returns:
      The pages.

    Raises:
      InputError: a record is damaged, a picture is missing; or a full disk.
    """
    files = {name: _records(name, (workdir, directory)) for name in all_names(declared)}
    pages = []
    for paper in PAPERS:
        names = [name for name in files if name.startswith(f"{paper}/") and files[name]]
        if not names:
            continue
        parts = [_HEAD.format(paper=_title(paper), note=NOTE)]
        for name in names:
            parts += [_part(declared, name, file, directory) for file in files[name]]
        pages.append(directory / f"reproduced_{paper}.md")
        write_text(pages[-1], "\n".join(parts))
    return pages


def _records(name: str, places: Sequence[Path]) -> list[Path]:
    """The records to show, one a scale, each from the first place that has it."""
    by_scale = {}
    for scale in SCALES:
        files = (result_file(place, scale, name, "json") for place in places)
        if file := next(filter(Path.is_file, files), None):
            by_scale[scale] = file
    large = [file for scale, file in by_scale.items() if scale != "tiny"]
    return large or list(by_scale.values())


def _title(paper: str) -> str:
    """The paper's name as its tables print it."""
    tables = printed_tables().items()
    return next(table.paper for name, table in tables if name.startswith(f"{paper}/"))


def _part(declared: Declarations, name: str, file: Path, directory: Path) -> str:
    """A table, or a figure's pictures below its title, as Markdown; copies its record."""
    record = read_result(file)
    if (record["name"], record["scale"]) != (name, file.parent.name):
        raise InputError(
            f"{file} is the record of {record['name']} at scale {record['scale']}, not of {name} "
            f"at scale {file.parent.name}: move it to its own place, or make {name} again."
        )
    folder = directory / file.parent.name
    folder.mkdir(parents=True, exist_ok=True)
    text = _table(declared, name, record, file) or _figure_title(declared, name, record)
    text += "".join(f"\n{sentence}\n" for sentence in _extent(record) if sentence)
    for picture in record.get("pictures", ()):
        source = file.with_name(f"{picture.replace('/', '-')}.svg")
        if not source.is_file():
            raise InputError(f"{source} is not there: make {name} again.")
        write_text(folder / source.name, source.read_text(encoding="utf-8"))
        text += f"\n![{picture}]({folder.name}/{source.name})\n"
    copied = json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"
    write_text(folder / file.name, copied)
    return re.sub(r"\n{3,}", "\n\n", text)


def _extent(record: Mapping[str, Any]) -> tuple[str, str]:
    """Numbers of questions, if the record has them, and the part that was made."""
    counts, limit = record.get("questions") or (), record.get("limit")
    questions = ""
    if counts:
        least, most = min(counts), max(counts)
        number = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        first = "The first " if limit and most <= limit else ""
        questions = f"{first}{number} questions of each run."
    return questions, parts_text(record)


def _table(declared: Declarations, name: str, record: Mapping[str, Any], file: Path) -> str:
    """The table of a record; empty if it is of a figure without one."""
    cells = read_cells(record, file)
    if not cells:
        return ""
    try:
        text = page.markdown(cells, declared.tables[name], printed_tables()[name], record)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{file} does not fit the table {name} ({error!r}): make the table again."
        ) from error
    return text.replace(f"\n{NOTE}\n", "")


def _figure_title(declared: Declarations, name: str, record: Mapping[str, Any]) -> str:
    """Heading of a figure, or of a table without cells."""
    paper, _, number = name.partition("/")
    title = f"{_title(paper)}, {number.replace('figure', 'Figure ')}"
    if figure := declared.figures.get(name):
        title += f": {figure.title}"
    text = f"## {title} (scale {record['scale']}, {record['date']})\n"
    models = ", ".join(map(shown_name, record.get("models") or ()))
    facts = {"Language model": models, "Prompts": page.prompts_text(record)}
    return text + "".join(f"\n{name}: {fact}.\n" for name, fact in facts.items() if fact)
