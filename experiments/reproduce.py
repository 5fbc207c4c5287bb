"""Reproduces tables and figures of the papers.

    jaxrag reproduce dtr/table2 --scale=tiny --workdir runs/reproduce
    jaxrag reproduce --list

Executes every run of a table and all that these need (trainings, labels, rewards), each in a
directory of its own below ``--workdir``, which other tables share. The same command goes on after
an interruption. The table is written to ``WORKDIR/SCALE/ID.md``, ``.tex`` and ``.json``: our value
with its interval, and beside the paper's models the printed value, and whether they agree. A figure
is written as SVG files, with its numbers as ``.json``; it is drawn by matplotlib, the extra
``figures``.

``--scale``: "tiny" for a test of the code, "small" for a laptop (models from pip packages, folders
of questions below $JAXRAG_DATA or the factbook), "paper" for the paper's models and data.
``--only=hotpotqa,dtr,7B`` makes a part of the table, ``--only=-rerank`` all but a part; the table
also has the rows whose jobs are finished already. ``--limit=500`` answers the first 500 questions
of each run that is shown. docs/reproduce.md has the flags of other models, data and settings
(``--reader``, ``--corpus``, ``--thresholds`` and others, which a page's heading names), and of
engines.

``--check`` builds every job of the named tables, or of all, without loading anything, and prints
what they require, as far as it is known: calls, tokens, time, indexes, memory of a device (of this
machine, or of ``--devices`` with ``--device_memory``), models, prompt sets, dollars; and what would
stop them, which is also listed before the first job. Without ``--scale`` it checks "paper".

``--list`` prints all tables and figures of the five papers, or of those that are named, as in
``--list dtr``: the number of printed values, what is shown, and when it was made in how many
minutes, by the records of ``--workdir`` and of docs/results.

``--pages=docs/results`` writes a page for each paper with the tables and figures that were made in
``--workdir``, and copies their records to ``docs/results/SCALE`` or ``SCALE-READER``. What has a
record there, but none in ``--workdir``, stays on the pages. ``--claims=docs/claims.md`` writes the
page of the papers' claims, judged by the records of ``--workdir``; with ``--pages``, by all records
of the pages.

Exit code 0: done; 1: some questions or jobs failed, and the same command tries them again; 2: wrong
input.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from jaxrag.configs.papers import ALL
from jaxrag.configs.papers.claims import CLAIMS
from jaxrag.configs.papers.models import PUBLISHED
from jaxrag.core.durable_files import write_text
from jaxrag.core.file_states import one_start
from jaxrag.evaluation.prices import prices
from jaxrag.evaluation.records import describe_environment
from jaxrag.evaluation.report.plots import check_matplotlib
from jaxrag.experiments.configuration import parse_named, script
from jaxrag.models.device_memory import Devices
from jaxrag.models.precision import compute_dtype
from jaxrag.models.quantisation import check_quantization
from jaxrag.reproduction import page
from jaxrag.reproduction.cells import as_json, table_cells
from jaxrag.reproduction.check import (
    Need,
    measured_rates,
    needs_grid,
    overview,
    paid_lines,
    read_rate,
    refuse_problems,
    requirements,
)
from jaxrag.reproduction.choices import (
    add,
    folder_of,
    other_settings,
    parts_to_make,
    prompt_sets,
    refuse_unused,
    substituted,
    substitutes_of,
    work_of,
)
from jaxrag.reproduction.claims_page import claims_page
from jaxrag.reproduction.listing import listing, parts_of, read_result, result_file
from jaxrag.reproduction.measures import Results, describe_runs, job_seconds
from jaxrag.reproduction.printed.tables import PAPERS, printed_tables
from jaxrag.reproduction.prompt_files import (
    check_replacements,
    read_replacements,
    replacement_record,
)
from jaxrag.reproduction.result_pages import write_pages
from jaxrag.reproduction.tables import Picture
from jaxrag.reproduction.work import Work
from jaxrag.types import InputError

_WIDTH = 120
_ELSEWHERE = ("only", "workdir", "claims", "pages", "list", "check")
"""Flags that change no result of a part."""
_RECORDS = Path(__file__).resolve().parent.parent / "docs" / "results"  # of a checkout


@one_start()
def main(argv: Sequence[str]) -> int:
    """Reproduces the named tables and figures, or lists all."""
    names, values = read_command(argv)
    papers = [name for name in names if name in PAPERS]
    names = [name for name in names if name not in PAPERS]
    console = Console(width=max(Console().width, 100 if values.list else _WIDTH))
    if values.prompts and (checked := names or (_all(values) if values.check else [])):
        used = prompt_sets(ALL, checked, values)
        check_replacements(read_replacements(values.prompts), used)
    drawn = (name in ALL.figures or ALL.tables[name].draw is not None for name in names)
    if not values.check and any(drawn):
        check_matplotlib()
    if values.list:
        directories, papers = [Path(values.workdir), _RECORDS], papers or PAPERS
        for grid in listing(ALL, directories, papers):
            console.print(grid.terminal())
        tables = printed_tables().values()
        count = sum(table.count for table in tables if table.id.partition("/")[0] in papers)
        print(f"{count:,} printed values. All that is made runs at tiny, small and paper.")
    if values.check:
        check(names, values, console)
        names = []
    work = work_of(ALL, names, values)
    for name in names:
        add(ALL, work, name, values.scale, parts_to_make(ALL, name, values))
    refuse_unused(ALL, names, values)
    refuse_problems(work, PUBLISHED, Devices.of(jax.local_devices()))
    errors = sum(_make(name, values, console) for name in names)
    if values.pages:
        for path in write_pages(ALL, CLAIMS, Path(values.workdir), Path(values.pages)):
            print(f"wrote {path}")
    if values.claims:
        file = Path(values.claims)
        write_text(file, claims_page(CLAIMS, Path(values.pages or values.workdir), file.parent))
        print(f"wrote {file}")
    return 1 if errors else 0


def _all(values: Any) -> list[str]:
    """All tables and figures, of papers that have what ``--fidelity`` asks for."""
    papers = ALL.released if values.fidelity == "released" else PAPERS
    return [name for name in (*ALL.tables, *ALL.figures) if name.partition("/")[0] in papers]


def read_command(argv: Sequence[str]) -> tuple[list[str], Any]:
    """The tables, figures and papers of a command, and its flags; InputError if one is unknown."""
    names, values = parse_named([part for word in argv for part in _list_of(word)], "reproduce")
    substitutes = substitutes_of(values)
    values.scale = values.scale or ("paper" if values.check or substitutes.given else "small")
    if (values.devices or values.device_memory) and not values.check:
        raise InputError("--devices and --device_memory are for --check: of another machine.")
    _check_thresholds(values.thresholds)
    if values.server and values.engine != "server":
        raise InputError("--server is for --engine=server: give both.")
    if values.engine == "local":
        compute_dtype(values.dtype or "float32", half=True)
        check_quantization(values.quantization)
    read_replacements(values.prompts)
    offered = [*ALL.tables, *ALL.figures, *(PAPERS if values.list else ())]
    for name in names:
        if name in ALL.left_out:
            raise InputError(f"{name} is not made: {ALL.left_out[name]}.")
        if name not in offered:
            near, *_ = difflib.get_close_matches(name, offered, 1, 0)
            raise InputError(f"no table or figure {name!r} (--list prints all). Nearest: {near}.")
    if not names and not (values.list or values.claims or values.pages or values.check):
        raise InputError(
            "name a table or a figure, such as dtr/table2, or give --list, --claims or --pages."
        )
    return names, values


def _check_thresholds(text: str) -> None:
    """InputError for what ``--thresholds`` does not take."""
    share = text in ("printed", "calibrated")
    with contextlib.suppress(ValueError):
        share = share or 0 <= float(text) <= 1
    if not share:
        raise InputError(
            f"--thresholds is {text!r}: give printed, calibrated, or a share from 0 to 1."
        )


def _list_of(word: str) -> tuple[str, ...]:
    """``--list=PAPER`` as two words."""
    flag, _, paper = word.partition("=")
    return (flag, paper) if flag == "--list" and paper.isalnum() else (word,)


def _file(name: str, values: Any, ending: str) -> Path:
    """File of the results of a table or figure, in a directory that is made here."""
    file = result_file(Path(values.workdir), folder_of(values), name, ending)
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def check(names: Sequence[str], values: Any, console: Console) -> None:
    """Prints the requirements of tables and figures; a job that several share is listed once.

    Without names all that have what the flags ask for, such as ``--only=7B``. InputError if
    something stops jobs; the message has all of it.
    """
    chosen = names or _all(values)
    work, devices = work_of(ALL, chosen, values), _devices(values)
    rates = measured_rates(Path(values.workdir))
    if values.tokens_per_second:
        rates = {"": read_rate(values.tokens_per_second)}
    by_table, seen = dict[str, list[Need]](), 0
    for name in dict.fromkeys(chosen):
        try:
            add(ALL, work, name, values.scale, parts_to_make(ALL, name, values))
        except InputError as error:
            if names:
                raise
            console.print(f"{name} is left out: {error}", highlight=False)
            continue
        new = [*work.jobs.items()][seen:]
        seen += len(new)
        by_table[name] = [requirements(p.name, job, PUBLISHED, devices) for p, job in new]
    console.print(needs_grid(by_table, rates).terminal())
    needs = [need for some in by_table.values() for need in some]
    for text in (
        *overview(work, needs, PUBLISHED, devices),
        *paid_lines(needs, prices(), values.search_price),
    ):
        console.print(text, highlight=False)
    refuse_unused(ALL, [*by_table], values)
    refuse_problems(work, PUBLISHED, devices)


def _devices(values: Any) -> Devices:
    """The devices of this machine, or those that ``--check`` is told."""
    if not values.device_memory:
        return Devices.of(jax.local_devices())
    return Devices(values.devices or 1, 1e9 * values.device_memory)


def _make(name: str, values: Any, console: Console) -> int:
    """Makes a table or figure, writes and prints it; number of questions and jobs that failed.

    A table also has the rows and data sets beside ``--only`` whose jobs are finished.
    """
    work, to_make = work_of(ALL, [name], values), parts_to_make(ALL, name, values)
    results = add(ALL, work, name, values.scale, to_make)
    errors = work.execute([path for result in results.values() for path in result.paths])
    errors += len(work.failed)
    if name in ALL.tables:  # the cells of jobs that failed stay empty
        results = {k: r for k, r in results.items() if work.failed.keys().isdisjoint(r.paths)}
    parts, file = [values.only], _file(name, values, "json")
    if name in ALL.tables and values.only:
        all_results = add(ALL, work, name, values.scale, to_make[len(values.only) :])
        results = {
            place: result
            for place, result in all_results.items()
            if place in results or all(map(work.finished, result.paths))
        }
        earlier = read_result(file) if file.is_file() else {}
        if earlier.get("command") == _command(name, values):
            parts = [part for part in parts_of(earlier) if part != values.only] + parts
    record = _record(name, values, parts, work, results.values())
    drawn = not work.failed and all(result.there for result in results.values())
    if name in ALL.tables:
        _write_table(name, values, results, record, console)
        if (draw := ALL.tables[name].draw) and drawn:
            record["pictures"] = _draw(name, draw(results), values)
    elif drawn:
        figure = ALL.figures[name]
        record["pictures"] = _draw(name, figure.draw(figure.title, results), values)
    else:
        print("the figure is drawn when all its jobs have ended without errors")
        return errors
    write_text(file, json.dumps(record, indent=1, allow_nan=False) + "\n")
    return errors


def _write_table(
    name: str, values: Any, results: Mapping[Any, Results], record: dict[str, Any], console: Console
) -> None:
    """Writes and prints a table; its cells are added to the record."""
    table, printed = ALL.tables[name], printed_tables()[name]
    cells = table_cells(
        table, printed, values.scale, results,
        whole=not values.limit, substituted=bool(record["substitutes"]),
    )  # fmt: skip
    record |= as_json(cells, printed)
    write_text(_file(name, values, "md"), page.markdown(cells, table, printed, record))
    write_text(_file(name, values, "tex"), page.latex(cells, printed))
    for grid in page.grids(cells, printed):
        console.print(grid.terminal())
    print(page.summary(cells, printed))
    print(f"wrote {_file(name, values, 'md')}, .tex and .json")


def _draw(name: str, pictures: Sequence[Picture], values: Any) -> dict[str, object]:
    """Writes pictures; what they show, by name."""
    for picture in pictures:
        file = _file(f"{name}{picture.suffix}", values, "svg")
        write_text(file, picture.svg)
        print(f"wrote {file}")
    return {f"{name}{picture.suffix}": picture.numbers for picture in pictures}


def _record(
    name: str, values: Any, parts: list[list[str]], work: Work, results: Iterable[Results]
) -> dict[str, Any]:
    files = read_replacements(values.prompts)
    used = prompt_sets(ALL, [name], values) if files else []
    return {
        "name": name,
        "command": _command(name, values),
        "scale": values.scale,
        "limit": values.limit,
        "only": [] if [] in parts else values.only,
        **({"parts": parts} if len(parts) > 1 else {}),
        "substitutes": substituted(values),
        "settings": other_settings(values),
        **({"failed": list(work.failed.values())} if work.failed else {}),
        "prompts": replacement_record(files, used),
        "date": datetime.date.today().isoformat(),
        "environment": describe_environment(),
        "seconds": round(sum(map(job_seconds, work.jobs)), 1) or None,  # unknown without a log
        **describe_runs(results, work.jobs, PUBLISHED.parameters),
    }


def _command(name: str, values: Any) -> str:
    """The command that makes a table or figure, without --only and --workdir."""
    options = (values[flag] for flag in values if flag not in _ELSEWHERE)
    texts = [flag.serialize() for flag in options if flag.value != flag.default]
    words = [name, *(line for text in texts for line in text.splitlines())]
    return f"jaxrag reproduce {shlex.join(words)}"


if __name__ == "__main__":
    script(main)
