"""What the flags of `jaxrag reproduce`, ``values``, choose, as the jobs' settings and in words."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.models.checkpoint.files import short_name
from jaxrag.reproduction.measures import Results
from jaxrag.reproduction.printed.tables import printed_tables
from jaxrag.reproduction.prompt_files import read_replacements, sets_in_use, with_prompts
from jaxrag.reproduction.substitutes import Substitutes, read_substitutes
from jaxrag.reproduction.tables import Declarations, Scale
from jaxrag.reproduction.work import Work, add_figure, add_table
from jaxrag.runs.job import Job
from jaxrag.runs.placement import Placement, on_engine, read_servers
from jaxrag.types import InputError


def add(
    declared: Declarations, work: Work, name: str, scale: Scale, only: Sequence[str] = ()
) -> Mapping[Any, Results]:
    """Adds the jobs of a table or figure; see `add_table` and `add_figure`."""
    if name in declared.tables:
        return add_table(work, declared.tables[name], printed_tables()[name], scale, only)
    return add_figure(work, name, declared.figures[name], scale, only)


def work_of(declared: Declarations, names: Sequence[str], values: Any) -> Work:
    """Where jobs lie, and all that is changed in them; InputError if a change does not fit."""
    fields = (field.name for field in dataclasses.fields(Placement))
    placement = Placement(**{name: getattr(values, name) for name in fields})
    changes: list[Callable[[Job], Job]] = [substitutes_of(values).apply]
    if values.fidelity == "released":
        papers = {name.partition("/")[0] for name in names}
        if unknown := papers - declared.released.keys():
            raise InputError(
                f"--fidelity=released is for {', '.join(declared.released)}; there is no released "
                f"code that differs from the paper for {', '.join(sorted(unknown))}."
            )
        changes += [declared.released[paper] for paper in papers]
    changes.append(with_prompts(read_replacements(values.prompts)))
    changes.append(on_engine(values.engine, read_servers(values.server), placement))
    ratios, thresholds = {"printed": "", "calibrated": "printed"}, str(values.thresholds)
    return Work(
        Path(values.workdir) / values.scale / "runs",
        limit=values.limit,
        sizes=values.sizes,
        ratio=ratios.get(thresholds, thresholds),
        seeds=values.seeds or (3 if values.scale == "paper" else 1),
        change=lambda job: functools.reduce(lambda changed, apply: apply(changed), changes, job),
    )


def substitutes_of(values: Any) -> Substitutes:
    """The models and data that replace the paper's; InputError if one cannot be read."""
    fields = {field.name for field in dataclasses.fields(Substitutes)}
    fields -= {"data", "folders", "checkpoint"}
    flags = {name: getattr(values, name) or type(getattr(Substitutes, name))() for name in fields}
    return read_substitutes(flags, values.data, values.checkpoint)


def parts_to_make(declared: Declarations, name: str, values: Any) -> list[str]:
    """The parts named, without data sets that ``--data`` lacks; InputError if it lacks all."""
    part: Any = declared.tables.get(name) or declared.figures[name]
    printed = printed_tables().get(name)
    datasets = (printed and printed.datasets) or part.datasets
    missing = substitutes_of(values).missing(datasets)
    if missing and len(missing) == len(datasets):
        raise InputError(
            f"--data={','.join(values.data)} has none of the data sets of {name}: folders named "
            f"{', '.join(datasets)}, with a file queries.jsonl."
        )
    return [*values.only, *(f"-{dataset}" for dataset in missing)]


def refuse_unused(declared: Declarations, names: Sequence[str], values: Any) -> None:
    """InputError if other data or checkpoints change no job of tables, whatever ``--only`` is."""
    substitutes = substitutes_of(values)
    if not substitutes.given.keys() & {"data", "folders", "corpus", "checkpoint"}:
        return
    work = Work(Path(), sizes=values.sizes)
    for name in names:
        parts = parts_to_make(declared, name, values)[len(values.only) :]
        add(declared, work, name, values.scale, parts)
    flags = substitutes.unused(work.jobs.values())
    if work.jobs and flags:
        raise InputError(
            f"{', '.join(flags)} changes nothing here: at --scale={values.scale} these tables have "
            "no such set or checkpoint, or the factbook stands for the set, as for all at tiny "
            "(docs/reproduce.md)."
        )


def folder_of(values: Any) -> str:
    """The directory of the results: the scale, and the reader if it is another."""
    reader = short_name(values.reader).removesuffix(".gguf") if values.reader else ""
    return f"{values.scale}-{reader}" if reader else values.scale


def prompt_sets(declared: Declarations, names: Sequence[str], values: Any) -> list[str]:
    """The prompt sets of tables and figures before any is replaced."""
    work = Work(Path())
    for name in names:
        add(declared, work, name, values.scale, values.only)
    return sets_in_use(work.jobs.values())


def substituted(values: Any) -> list[str]:
    """Models, data and sizes other than the paper's, for the heading."""
    texts = substitutes_of(values).descriptions
    if values.sizes and values.sizes != values.scale:
        texts.append(f"trainings and draws of the scale {values.sizes}")
    return texts


def other_settings(values: Any) -> list[str]:
    """Settings other than the paper's, for the heading."""
    texts = []
    if values.thresholds != "printed":
        share = "the printed share" if values.thresholds == "calibrated" else values.thresholds
        texts.append(f"gates set on training questions to retrieve for {share}")
    if values.fidelity == "released":
        texts.append("settings of the released code")
    if values.quantization:
        texts.append(f"language models quantised ({values.quantization})")
    return texts
