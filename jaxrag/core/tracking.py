"""Metrics of trainings and runs for TensorBoard and Weights & Biases, beside our own files.

``JAXRAG_TRACK=tensorboard``, ``wandb``, or both with a comma, turns it on; without it nothing is
tracked. Files are in ``tensorboard`` and ``wandb`` of the job's directory; Weights & Biases is
offline unless ``WANDB_MODE`` says otherwise.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxrag.core.hashing import digest
from jaxrag.core.json_text import parse_json
from jaxrag.types import InputError

VARIABLE = "JAXRAG_TRACK"
KINDS = {"tensorboard": "tensorboardX", "wandb": "wandb"}
"""What can be written, and the pip package that writes it."""

Track = Callable[[int, Mapping[str, Any]], None]
"""Takes a step and its metrics. Mappings are flattened; what is no number is left out."""


@contextlib.contextmanager
def tracking(directory: Path, *, after: int = 0, writes: bool = True) -> Iterator[Track]:
    """Opens the trackers that ``$JAXRAG_TRACK`` names for a job; closes them after the block.

    ``after`` is the step after which the job goes on: later ones of an earlier process do not
    count. ``writes`` is False for a process beside the first, which tracks nothing. InputError if
    the variable has another name, or a package is missing.
    """
    modules = trackers() if writes else {}
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(_OPENERS[name](module, directory, after))
            for name, module in modules.items()
        ]

        def track(step: int, metrics: Mapping[str, Any]) -> None:
            numbers = dict(_numbers(metrics))
            for write in writers:
                write(step, numbers)

        yield track


def trackers() -> dict[str, Any]:
    """The packages that ``$JAXRAG_TRACK`` names, to be had early; InputError as `tracking`."""
    return {name: _module(name) for name in os.environ.get(VARIABLE, "").split(",") if name}


def _module(name: str) -> Any:
    if name not in KINDS:
        raise InputError(f"${VARIABLE} is {name!r}; give {' or '.join(KINDS)}, or both: A,B.")
    try:
        return importlib.import_module(KINDS[name])
    except ImportError:
        raise InputError(
            f"${VARIABLE} is {name!r}, which needs a package: pip install {KINDS[name]}"
        ) from None


def _numbers(metrics: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """The finite numbers by name; those of an inner mapping have its name before theirs."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{above}{name}/")
        elif isinstance(value, int | float) and math.isfinite(value):
            yield f"{above}{name}", float(value)


@contextlib.contextmanager
def _tensorboard(module: Any, directory: Path, after: int) -> Iterator[Track]:
    where = str(directory / "tensorboard")
    with module.SummaryWriter(where, purge_step=after + 1 if after else None) as writer:

        def write(step: int, numbers: Mapping[str, Any]) -> None:
            for name, value in numbers.items():
                writer.add_scalar(name, value, step)

        yield write


@contextlib.contextmanager
def _wandb(module: Any, directory: Path, _: int) -> Iterator[Track]:
    settings = directory / "config.json"
    run = module.init(
        project=os.environ.get("WANDB_PROJECT", "jaxrag"),
        name=directory.name,
        id=digest(str(directory.resolve()))[:16],
        dir=str(directory),
        mode=os.environ.get("WANDB_MODE", "offline"),
        resume="allow",
        config=parse_json(settings.read_bytes()) if settings.is_file() else {},
    )
    try:
        yield lambda step, numbers: run.log(dict(numbers), step=step)
    finally:
        run.finish()


_OPENERS = {"tensorboard": _tensorboard, "wandb": _wandb}
