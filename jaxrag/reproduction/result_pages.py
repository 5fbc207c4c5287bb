"""Pages of the tables that were made, one a paper, with the records that claims are judged by."""

from __future__ import annotations

import json
import re
from pathlib import Path

from jaxrag.core.durable_files import write_text
from jaxrag.evaluation.printed import PAPERS, printed_tables
from jaxrag.reproduction.listing import all_names, read_result, result_file
from jaxrag.reproduction.page import NOTE
from jaxrag.reproduction.tables import Declarations, Scale
from jaxrag.types import InputError

_MADE_AT: tuple[Scale, ...] = ("small", "paper")

_HEAD = """# {paper}: reproduced tables

Made by `python -m experiments.reproduce --pages=docs/results` from the tables and figures that were
made with the same `--workdir`. Records with all cells and pictures are in the folder of each scale.
At the scale small, SmolLM2-135M-Instruct and all-MiniLM-L6-v2 stand for the paper's models, and
folders of questions, or the factbook, for its data: these values test the code and show what it
costs; they say nothing about the printed numbers.

{note}
"""


def write_pages(declared: Declarations, workdir: Path, directory: Path) -> list[Path]:
    """Writes "reproduced_PAPER.md" for each paper of which tables or figures were made.

    Beside them, in folders "small" and "paper", the records as JSON and the pictures.

    Args:
      workdir: of the command that made them.
      directory: of the pages; created if missing.

    Returns:
      The pages.

    Raises:
      InputError: a record is damaged, a table or picture is missing; or a full disk.
    """
    found: dict[str, list[Scale]] = {
        name: [scale for scale in _MADE_AT if result_file(workdir, scale, name, "json").is_file()]
        for name in all_names(declared)
    }
    pages = []
    for paper in PAPERS:
        names = [name for name in found if name.startswith(f"{paper}/") and found[name]]
        if not names:
            continue
        parts = [_HEAD.format(paper=_title(paper), note=NOTE)]
        for name in names:
            figure = declared.figures.get(name)
            title = f"{_title(paper)}, {name.partition('/')[2].replace('figure', 'Figure ')}"
            title += f": {figure.title}" if figure else ""
            parts += [_part(workdir, scale, name, title, directory) for scale in found[name]]
        pages.append(directory / f"reproduced_{paper}.md")
        write_text(pages[-1], "\n".join(parts))
    return pages


def _title(paper: str) -> str:
    """The paper's name as its tables print it."""
    tables = printed_tables().items()
    return next(table.paper for name, table in tables if name.startswith(f"{paper}/"))


def _part(workdir: Path, scale: Scale, name: str, title: str, directory: Path) -> str:
    """A table, or a figure's pictures below its title, as Markdown; copies its record."""
    record = read_result(result_file(workdir, scale, name, "json"))
    copy = result_file(directory, scale, name, "json")
    copy.parent.mkdir(parents=True, exist_ok=True)
    write_text(copy, json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n")
    table = result_file(workdir, scale, name, "md")
    if record.get("cells") and not table.is_file():
        raise InputError(f"{table} is not there: make {name} again.")
    if table.is_file():
        text = table.read_text(encoding="utf-8").replace(f"\n{NOTE}\n", "")
    else:
        text = f"## {title} (scale {scale}, {record['date']})\n"
    if limit := record.get("limit"):
        text += f"\nThe first {limit:,} questions of each run.\n"
    for picture in record.get("pictures", ()):
        source = result_file(workdir, scale, picture, "svg")
        target = result_file(directory, scale, picture, "svg")
        if not source.is_file():
            raise InputError(f"{source} is not there: make {name} again.")
        write_text(target, source.read_text(encoding="utf-8"))
        text += f"\n![{picture}]({scale}/{target.name})\n"
    return re.sub(r"\n{3,}", "\n\n", text)
