"""Reproduces tables and figures of the papers.

    python -m experiments.reproduce dtr/table2 --scale=tiny --workdir runs/reproduce
    python -m experiments.reproduce --list

Executes every run of a table and all that these need (trainings, labels, rewards), each in a
directory of its own below ``--workdir``, which other tables share. The same command goes on after
an interruption. The table is written to ``WORKDIR/SCALE/ID.html``, ``.md``, ``.json``, ``.csv`` and
``.tex``: our value with its interval, and beside the paper's models the printed value, and whether
they agree. A figure is written as SVG files, with its numbers as ``.json``; it is drawn by
matplotlib, the extra ``figures``.

``--scale``: "tiny" for a test of the code, "small" for a laptop (models from pip packages, folders
of questions below $JAXRAG_DATA or the factbook), "paper" for the paper's models and data.
``--only=hotpotqa,dtr,7B`` makes a part of the table: these data sets, methods, generators and
retrievers, or series of a figure; ``--only=-rerank`` all but a part. Parts that earlier commands
made with the same settings stay in the table. ``--limit=500`` answers the first 500 questions of
each run that is shown; trainings, and the data that they learn from, have all of theirs.

``--reader=CHECKPOINT`` answers in place of every generator of the paper, with the paper's settings:
``--scale=paper --reader=hub:Qwen/Qwen2.5-3B-Instruct --limit=1000 --corpus=gold+100000``. Likewise
``--judge``, ``--rewriter`` (both are the reader unless given), ``--encoder``, ``--reranker`` and
``--index=exact``, ``scann`` or ``bm25``. ``--data=nq=FOLDER`` takes the questions of a folder,
``--data=nq=squad`` those of another published set, ``--data=FOLDER`` those of the folders in it
that have the sets' names; other sets are left out. ``--corpus=NAME`` or ``FOLDER`` is searched for
all of them; ``gold+100000`` is a set's gold passages and 100,000 others of the paper's corpus.
``--sizes=small`` takes the trainings' steps from that scale, and at most 300 questions to train on
and 100 to evaluate of a random draw. A page's heading names all of these, and no printed value
stands beside ours.

``--seeds=3`` repeats every training with three seeds, and what needs it: a value is then the mean
over seeds and questions, with an interval over both. Three at scale paper, else one unless given.

``--thresholds=calibrated`` sets each gate's threshold on training questions, so that it retrieves
for the share of them that the paper prints; ``--thresholds=0.75`` for this share.

``--fidelity=released`` makes DTR's tables with what its released code does instead of the paper.

``--engine=vllm`` runs the language models by vLLM, including those of trainings.
``--engine=server`` sends requests to OpenAI-compatible servers: ``--server=http://HOST:PORT/v1``,
or ``--server=NAME=URL`` for each of several models. A server that stops ends the command; with the
server back, the same command goes on. ``--dtype``, ``--quantization``, ``--tensor_parallel``,
``--data_parallel`` and ``--memory`` are settings of the engine (docs/engines.md).

``--prompts=dtr=my/dtr.toml`` replaces the prompt set "dtr" by a file in every job, such as by one
with a paper's own words (docs/prompts.md). The flag may be repeated for other sets. ``--check``
lists the sets in use.

``--check`` builds every job of the named tables, or of all, without loading anything, and prints
the requirements of each: questions, expected calls of language models and tokens, their time, the
size of the index, the models that must be downloaded, the prompt sets, and calls and dollars of
paid services. Without ``--scale`` it checks "paper". Times are by the speed of ``--workdir``'s runs
on the same devices, or by ``--tokens_per_second=READ,WRITTEN``; dollars by the prices of
jaxrag/evaluation/prices.py and ``--search_price=5`` for 1,000 web searches. What is not known is
called unknown.

Everything that would stop a job (sets that are not built, missing packages, devices, keys and
checkpoints, too little memory) is listed by ``--check``, and before the first job.

``--list`` prints all tables and figures of the five papers: the number of printed values, at which
scales they run, and when they were measured, by the records of ``--workdir`` and of docs/results.

``--claims=docs/claims.md`` writes the page of the papers' claims with our results, from all tables
and figures that were made in ``--workdir``; ``--pages=docs/results`` writes a page for each paper
with these tables, and copies their records to ``docs/results/SCALE``. Tables that have a record
there, but none in ``--workdir``, stay on the pages. With both flags, claims are judged by all
records of the pages.

Exit code 0: done; 1: some questions or jobs failed, and the same command tries them again; 2: wrong
input.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import functools
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from absl import flags
from rich.console import Console

from configs.papers import ALL
from configs.papers.claims import CLAIMS, FIGURE_CLAIMS
from configs.papers.models import DIMENSIONS, PARAMETERS
from experiments.configuration import parse_named, script
from jaxrag.core.durable_files import write_text
from jaxrag.core.file_states import one_start
from jaxrag.evaluation.prices import prices
from jaxrag.evaluation.records import describe_environment
from jaxrag.evaluation.report.plots import check_matplotlib
from jaxrag.evaluation.summary import calibration_text, name_of
from jaxrag.models.checkpoint.files import short_name
from jaxrag.reproduction import claims, page
from jaxrag.reproduction.cells import as_json, table_cells
from jaxrag.reproduction.check import (
    Need,
    Rate,
    indexes_text,
    key_variables,
    measured_rates,
    models_text,
    needs_grid,
    paid_text,
    problems,
    requirements,
    totals_text,
)
from jaxrag.reproduction.claims_page import claims_page
from jaxrag.reproduction.engines import ENGINES, Placement, on_engine, read_servers
from jaxrag.reproduction.listing import listing, result_file
from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.parts import Part, combine, earlier_parts
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.reproduction.prompt_files import (
    check_replacements,
    read_replacements,
    replacement_record,
    sets_in_use,
    with_prompts,
)
from jaxrag.reproduction.result_pages import write_pages
from jaxrag.reproduction.substitutes import INDEXES, Substitutes, read_substitutes
from jaxrag.reproduction.tables import SCALES, Figure, Picture, Scale, Table
from jaxrag.reproduction.work import Work, add_figure, add_table
from jaxrag.runs.job import Job
from jaxrag.steps.gates import RATIO, read_ratio
from jaxrag.types import InputError

_WIDTH = 120
_MODELS = {
    "reader": "the models that answer",
    "judge": "those that judge",
    "rewriter": "those that rewrite",
    "encoder": "the encoder of dense indexes",
    "reranker": "the reranker, or query_likelihood",
}
FIDELITIES = ("paper", "released")
_RECORDS = Path(__file__).parent.parent / "docs" / "results"  # of a checkout


def _define(values: flags.FlagValues) -> None:
    flags.DEFINE_string("workdir", "runs/reproduce", "parent of all results", flag_values=values)
    about = "of data and models; small by default, of --check paper"
    flags.DEFINE_enum("scale", None, SCALES, about, flag_values=values)
    about = "methods, series, data sets, generators and retrievers"
    flags.DEFINE_list("only", [], about, flag_values=values)
    flags.DEFINE_integer("limit", 0, "questions of a run; 0 is all", flag_values=values)
    flags.DEFINE_enum("engine", "local", ENGINES, "of the language models", flag_values=values)
    flags.DEFINE_multi_string("server", [], "URL, or NAME=URL of a model", flag_values=values)
    for name, about in _MODELS.items():
        flags.DEFINE_string(name, "", f"checkpoint in place of {about}", flag_values=values)
    flags.DEFINE_enum("index", "", INDEXES, "of dense vectors", flag_values=values)
    about = "SET=FOLDER, SET=NAME of another set, or a folder of folders"
    flags.DEFINE_multi_string("data", [], about, flag_values=values)
    about = "that is searched: a name, a folder, or gold+NUMBER"
    flags.DEFINE_string("corpus", "", about, flag_values=values)
    flags.DEFINE_enum("sizes", None, SCALES, "of trainings and draws", flag_values=values)
    about = "of trainings; 3 at scale paper, else 1"
    flags.DEFINE_integer("seeds", None, about, 1, flag_values=values)
    about = "of gates: printed, calibrated, or a ratio of retrieval"
    flags.DEFINE_string("thresholds", "printed", about, flag_values=values)
    flags.DEFINE_enum("fidelity", "paper", FIDELITIES, "paper or released code", flag_values=values)
    flags.DEFINE_string("dtype", "", "float type of language models", flag_values=values)
    flags.DEFINE_string("quantization", "", "of language models", flag_values=values)
    flags.DEFINE_integer("tensor_parallel", 0, "devices of a model's layers", flag_values=values)
    flags.DEFINE_integer("data_parallel", 0, "devices with a copy of a model", flag_values=values)
    flags.DEFINE_float("memory", 0.0, "share of a device that vLLM takes", flag_values=values)
    flags.DEFINE_multi_string("prompts", [], "NAME=FILE of a prompt set", flag_values=values)
    flags.DEFINE_string("claims", "", "page of claims to write", flag_values=values)
    flags.DEFINE_string("pages", "", "directory of pages of the results", flag_values=values)
    flags.DEFINE_bool("check", False, "only print the requirements of the jobs", flag_values=values)
    rate = "READ,WRITTEN, or one number for both, for the time that --check prints"
    flags.DEFINE_list("tokens_per_second", [], rate, flag_values=values)
    price = "dollars for 1,000 web searches, for --check"
    flags.DEFINE_float("search_price", None, price, 0, flag_values=values)
    flags.DEFINE_bool("list", False, "print all tables and figures", flag_values=values)


@one_start()
def main(argv: Sequence[str]) -> int:
    """Reproduces the named tables and figures, or lists all."""
    names, values = read_command(argv)
    console, errors = Console(width=max(Console().width, _WIDTH)), 0
    checked = names or ([*ALL.tables, *ALL.figures] if values.check else [])
    if checked and values.prompts:
        check_replacements(read_replacements(values.prompts), _sets_in_use(checked, values))
    if not values.check and any(map(_is_drawn, names)):
        check_matplotlib()
    if values.list:
        directories = [Path(values.workdir), _RECORDS]
        console.print(listing(ALL, directories, missing_keys).terminal())
    if values.check:
        check(checked, values, console)
        names = []
    work = _work(names, values)
    for name in names:
        add(work, name, values.scale, _only(name, values))
    _refuse_problems(work)
    for name in names:
        if name in ALL.tables:
            errors += _make_table(name, ALL.tables[name], values, console)
        if name in ALL.figures:
            errors += _make_figure(name, ALL.figures[name], values)
    if values.pages:
        for path in write_pages(ALL, Path(values.workdir), Path(values.pages)):
            print(f"wrote {path}")
    if values.claims:
        write_text(
            Path(values.claims),
            claims_page(CLAIMS, FIGURE_CLAIMS, Path(values.pages or values.workdir)),
        )
        print(f"wrote {values.claims}")
    return 1 if errors else 0


def _is_drawn(name: str) -> bool:
    return name in ALL.figures or ALL.tables[name].draw is not None


def read_command(argv: Sequence[str]) -> tuple[list[str], Any]:
    """The tables and figures to make, and the flags.

    Raises:
      InputError: a flag or a name is unknown, or there is nothing to do.
    """
    names, values = parse_named(argv, _define)
    substitutes = _substitutes(values)
    values.scale = values.scale or ("paper" if values.check or substitutes.given else "small")
    values.seeds = values.seeds or (3 if values.scale == "paper" else 1)
    read_replacements(values.prompts)
    known = [*ALL.tables, *ALL.figures]
    for name in names:
        if name in ALL.left_out:
            raise InputError(f"{name} is not made: {ALL.left_out[name]}.")
        if name not in known:
            near, *_ = difflib.get_close_matches(name, known, 1, 0)
            raise InputError(f"no table or figure {name!r} (--list prints all). Nearest: {near}.")
    if not names and not (values.list or values.claims or values.pages or values.check):
        raise InputError(
            "name a table or a figure, such as dtr/table2, or give --list, --claims or --pages."
        )
    return names, values


def _work(names: Sequence[str], values: Any) -> Work:
    """The directories of the jobs of tables and figures, and all that is changed in their settings.

    Raises:
      InputError: a change does not fit these tables.
    """
    names_of = (field.name for field in dataclasses.fields(Placement))
    placement = Placement(**{name: getattr(values, name) for name in names_of})
    changes: list[Callable[[Job], Job]] = [_substitutes(values).apply]
    if values.fidelity == "released":
        papers = {name.partition("/")[0] for name in names}
        if unknown := papers - ALL.released.keys():
            raise InputError(
                f"--fidelity=released is for {', '.join(ALL.released)}; there is no released code "
                f"that differs from the paper for {', '.join(sorted(unknown))}."
            )
        changes += [ALL.released[paper] for paper in papers]
    changes.append(with_prompts(read_replacements(values.prompts)))
    changes.append(on_engine(values.engine, read_servers(values.server), placement))
    root = Path(values.workdir) / values.scale / "runs"

    def change(job: Job) -> Job:
        return functools.reduce(lambda changed, apply: apply(changed), changes, job)

    ratio = _ratio(values.thresholds)
    return Work(
        root,
        limit=values.limit,
        sizes=values.sizes,
        ratio=ratio,
        seeds=values.seeds,
        change=change,
    )


def _ratio(thresholds: str) -> str:
    """`Setting.ratio` of ``--thresholds``.

    Raises:
      InputError: it is none of the words, and no ratio.
    """
    words = {"printed": "", "calibrated": "printed"}
    if thresholds not in words:
        read_ratio("--thresholds", f"{RATIO}{thresholds}")
    return words.get(thresholds, thresholds)


def _substitutes(values: Any) -> Substitutes:
    given = {name: getattr(values, name) for name in (*_MODELS, "index", "corpus")}
    return read_substitutes({**given, "sizes": values.sizes or ""}, values.data)


def _missing(name: str, values: Any) -> list[str]:
    """The data sets of a table or figure that ``--data`` has no folder for.

    Raises:
      InputError: it has none of all.
    """
    declared: Any = ALL.tables.get(name) or ALL.figures[name]
    printed = printed_tables().get(name)
    datasets = (printed and printed.datasets) or declared.datasets
    missing = _substitutes(values).missing(datasets)
    if missing and len(missing) == len(datasets):
        raise InputError(
            f"--data={','.join(values.data)} has none of the data sets of {name}: folders named "
            f"{', '.join(datasets)}, with a file queries.jsonl."
        )
    return missing


def _only(name: str, values: Any) -> list[str]:
    """The parts that are made: those named, without the data sets that are not there."""
    return [*values.only, *(f"-{dataset}" for dataset in _missing(name, values))]


def _folder(values: Any) -> str:
    """The directory of the results: the scale, and the reader if it is another."""
    reader = short_name(values.reader).removesuffix(".gguf") if values.reader else ""
    return f"{values.scale}-{reader}" if reader else values.scale


def _file(name: str, values: Any, ending: str) -> Path:
    """File of the results of a table or figure, in a directory that is made here."""
    file = result_file(Path(values.workdir), _folder(values), name, ending)
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _sets_in_use(names: Sequence[str], values: Any) -> list[str]:
    """The prompt sets of tables and figures before any is replaced."""
    work = Work("")
    for name in names:
        add(work, name, values.scale, values.only)
    return sets_in_use(work.jobs.values())


def check(names: Sequence[str], values: Any, console: Console) -> None:
    """Prints the requirements of tables and figures; a job that several share is listed once.

    Raises:
      InputError: something stops jobs; the message has all of it.
    """
    work = _work(names, values)
    rates = measured_rates(Path(values.workdir))
    if values.tokens_per_second:
        rates = {"": _rate(values.tokens_per_second)}
    known: dict[Path, Need] = {}
    for name in dict.fromkeys(names):
        add(work, name, values.scale, _only(name, values))
        before = len(known)
        for path, job in work.jobs.items():
            if path not in known:
                sources = [known[one] for one in work.needs[path]]
                known[path] = requirements(
                    path.name, job, DIMENSIONS, root=work.root, sources=sources
                )
        found = list(known.values())[before:]
        console.print(f"{name}: {len(found)} jobs that no table before it has")
        if found:
            console.print(needs_grid(found, rates).terminal())
    needs = list(known.values())
    console.print(f"Indexes:\n{indexes_text(needs)}", highlight=False)
    models = models_text(work.jobs.values(), PARAMETERS) or "none to download"
    console.print(f"Models: {models}", highlight=False)
    sets = ", ".join(sets_in_use(work.jobs.values())) or "none"
    console.print(f"Prompts: {sets}", highlight=False)
    if paid := paid_text(needs, prices(), values.search_price):
        console.print(f"Paid services:\n{paid}", highlight=False)
    console.print(totals_text(needs, rates), highlight=False)
    _refuse_problems(work)


def _rate(given: Sequence[str]) -> Rate:
    """The rate that the flag --tokens_per_second gives: of reading and writing, or of both."""
    try:
        numbers = [float(text) for text in given]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or min(numbers) <= 0:
        raise InputError(
            f"--tokens_per_second is {','.join(given)}: give one number, or those of tokens read "
            "and of tokens written, such as 20000,2000."
        )
    return Rate(numbers[0], numbers[-1])


def _refuse_problems(work: Work) -> None:
    """InputError with all that stops the jobs that are not finished, before the first begins."""
    todo = {path: job for path, job in work.jobs.items() if not work.finished(path)}
    found = problems(todo, work.root, PARAMETERS)
    if found:
        lines = (f"  {message} ({_named(jobs)})" for message, jobs in found.items())
        raise InputError("these jobs cannot be done here yet:\n" + "\n".join(lines))


def _named(jobs: Sequence[str]) -> str:
    return jobs[0] if len(jobs) == 1 else f"{jobs[0]} and {len(jobs) - 1} other jobs"


def add(work: Work, name: str, scale: Scale, only: Sequence[str] = ()) -> None:
    """Adds the jobs of a table, a figure, or both of a name."""
    if name in ALL.tables:
        add_table(work, ALL.tables[name], printed_tables()[name], scale, only)
    if name in ALL.figures:
        add_figure(work, name, ALL.figures[name], scale, only)


def missing_keys(name: str) -> list[str]:
    """Environment variables that a table or figure needs at paper scale and that are not set."""
    work = Work("")
    add(work, name, "paper")
    needed = sorted({key for job in work.jobs.values() for key in key_variables(job)})
    return [key for key in needed if not os.environ.get(key)]


def _execute(work: Work, results: Iterable[Results]) -> int:
    """Executes the jobs of some results; number of questions, and of jobs, that failed."""
    errors = work.execute([path for one in results for path in one.paths])
    return errors + len(work.failed)


def _make_table(name: str, table: Table, values: Any, console: Console) -> int:
    """Makes a table, writes and prints it; the number of questions that failed."""
    scale: Scale = values.scale
    printed, work = printed_tables()[name], _work([name], values)
    earlier, missing = _earlier_parts(name, values), _only(name, values)[len(values.only) :]

    def add_part(only: Sequence[str]) -> dict[tuple[int, str], Results]:
        return add_table(work, table, printed, scale, [*only, *missing])

    errors = _execute(work, add_part(values.only).values())
    results, parts = combine(values.only, earlier, add_part, work.finished)
    record = {**_record(name, values, parts, work), **_of_runs(results.values())}
    cells = table_cells(
        table, printed, scale, results,
        whole=not values.limit, substituted=bool(record["substitutes"]),
    )  # fmt: skip
    record |= as_json(cells, printed)
    record["claims"] = [
        claims.as_json(claim.id, claims.compare(claim, printed, cells))
        for claim in CLAIMS
        if claim.table == name
    ]
    if table.draw and all(one.there for one in results.values()):
        record["pictures"] = _draw(table.draw(results), values)
    text = page.markdown(cells, table, printed, record)
    html = page.html(cells, table, printed, record)
    written = {
        "json": json.dumps(record, indent=1, allow_nan=False) + "\n",
        "md": text,
        "html": html,
        "csv": page.csv(cells, printed),
        "tex": page.latex(cells, printed),
    }
    for ending, content in written.items():
        write_text(_file(name, values, ending), content)
    for grid in page.grids(cells, printed):
        console.print(grid.terminal())
    print(page.summary(cells, printed))
    page_file = _file(name, values, "html")
    print(f"wrote {page_file}, .md, .json, .csv, .tex")
    return errors


def _make_figure(name: str, figure: Figure, values: Any) -> int:
    """Makes a figure and writes it; the number of questions that failed."""
    scale: Scale = values.scale
    work = _work([name], values)
    earlier, missing = _earlier_parts(name, values), _only(name, values)[len(values.only) :]

    def add_part(only: Sequence[str]) -> dict[str, Results]:
        return add_figure(work, name, figure, scale, [*only, *missing])

    errors = _execute(work, add_part(values.only).values())
    results, parts = combine(values.only, earlier, add_part, work.finished)
    if not all(one.there for one in results.values()):
        print("the figure is drawn when the jobs of all its parts have ended without errors")
        return errors
    record = {**_record(name, values, parts, work), **_of_runs(results.values())}
    record["pictures"] = _draw(figure.draw(results), values)
    file = _file(name, values, "json")
    write_text(file, json.dumps(record, indent=1, allow_nan=False) + "\n")
    return errors


def _earlier_parts(name: str, values: Any) -> list[Part]:
    """The parts that a new part joins; a whole table or figure replaces them."""
    file = _file(name, values, "json")
    return earlier_parts(file) if values.only else []


def _draw(pictures: Sequence[Picture], values: Any) -> dict[str, object]:
    """Writes pictures; what they show, by name."""
    for picture in pictures:
        file = _file(picture.name, values, "svg")
        write_text(file, picture.svg)
        print(f"wrote {file}")
    return {picture.name: picture.numbers for picture in pictures}


def _record(name: str, values: Any, parts: list[Part], work: Work) -> dict[str, Any]:
    files = read_replacements(values.prompts)
    used = _sets_in_use([name], values) if files else []
    return {
        "name": name,
        "scale": values.scale,
        "limit": values.limit,
        "only": [] if [] in parts else values.only,
        **({"parts": parts} if len(parts) > 1 else {}),
        "substitutes": _substituted(values),
        "settings": _other_settings(values),
        **({"failed": list(work.failed.values())} if work.failed else {}),
        "prompts": replacement_record(files, used),
        "date": datetime.date.today().isoformat(),
        "environment": describe_environment(),
    }


def _substituted(values: Any) -> list[str]:
    """Models, data and sizes other than the paper's, for the heading."""
    texts = _substitutes(values).descriptions
    if values.sizes and values.sizes != values.scale:
        texts.append(f"trainings and draws of the scale {values.sizes}")
    return texts


def _other_settings(values: Any) -> list[str]:
    """Settings other than the paper's, for the heading."""
    texts = []
    if values.thresholds != "printed":
        share = "the printed share" if values.thresholds == "calibrated" else values.thresholds
        texts.append(f"gates set on training questions to retrieve for {share}")
    if values.fidelity == "released":
        texts.append("settings of the released code")
    return texts


def _of_runs(results: Iterable[Results]) -> dict[str, list[Any]]:
    """Of runs: the language models, the numbers of questions, and the thresholds that were set."""
    models, questions, thresholds = set[str](), set[int](), dict[str, None]()
    for run in (run for one in results for run in one.runs()):
        models.add(name_of(run.config, "language_model"))
        questions.add(len(run.records))
        if found := run.config.get("calibration"):
            name = f"{run.config['method']['name']} on {run.config['dataset']['name']}"
            thresholds[f"{name}: {calibration_text(found)}"] = None
    return {
        "models": sorted(models - {"unnamed"}),
        "questions": sorted(questions),
        **({"thresholds": list(thresholds)} if thresholds else {}),
    }


if __name__ == "__main__":
    script(main)
