"""Tables and figures that several commands make, each a part of them by ``--only``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from jaxrag.reproduction.listing import read_result
from jaxrag.reproduction.measures import Results
from jaxrag.types import InputError

Key = TypeVar("Key")
Part = list[str]
"""Methods, series and data sets of a command's ``--only``; empty for all."""


def parts_of(record: Mapping[str, Any]) -> list[Part]:
    """The parts that a record holds, in the order in which they were made."""
    return record.get("parts") or [record.get("only") or []]


def earlier_parts(file: Path) -> list[Part]:
    """The parts of an existing record; none without one.

    Raises:
      InputError: the record is damaged.
    """
    parts: Any = parts_of(read_result(file)) if file.is_file() else []
    lists = isinstance(parts, list) and all(isinstance(part, list) for part in parts)
    if not lists or not all(isinstance(name, str) for part in parts for name in part):
        raise InputError(
            f'"parts" in {file} must be a list of lists of names: delete the file and make the '
            "parts again; finished jobs are not repeated."
        )
    return parts


def parts_text(record: Mapping[str, Any]) -> str:
    """How the parts of a record were made, as Markdown; empty if it is whole."""
    parts = parts_of(record)
    if [] in parts:
        return ""
    named = (f"`--only={','.join(part)}`" for part in parts)
    return f"Made with {', then with '.join(named)}."


def combine(
    only: Sequence[str],
    earlier: Iterable[Part],
    add: Callable[[Sequence[str]], Mapping[Key, Results]],
    finished: Callable[[Path], bool],
) -> tuple[dict[Key, Results], list[Part]]:
    """Results of a command's part, and of earlier parts whose jobs are all finished.

    A part that was made with other settings, such as another limit of questions, consists of other
    jobs and is left out.

    Args:
      only: the command's part.
      earlier: the parts before it.
      add: results of a part, as of `jaxrag.reproduction.work.add_table` or ``add_figure``.
      finished: whether the job of a directory is finished.

    Returns:
      Results in the order of the whole, of a figure's data set only the jobs that were made; and
      the parts that they are of.
    """
    if not only:
        return dict(add(())), [[]]
    wanted, parts = _directories(add(only)), list[Part]()
    for part in earlier:
        with contextlib.suppress(InputError):  # the table has changed and lacks a name
            own = _directories(add(part))
            if part != list(only) and all(map(finished, own)):
                wanted |= own
                parts.append(part)
    combined = {}
    for key, whole in add(()).items():
        made, *others = (
            {job: path for job, path in one.directories.items() if path in wanted}
            for one in whole.seeds
        )
        if made and (whole.row is None or made == whole.directories):
            combined[key] = Results(made, whole.row, others)
    return combined, [*parts, list(only)]


def _directories(results: Mapping[Any, Results]) -> set[Path]:
    return {path for outputs in results.values() for path in outputs.paths}
