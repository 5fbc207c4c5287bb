"""A training run: steps, their figures in a file, checkpoints, and going on after an interruption.

The loop knows nothing of what is trained. A step is a function of the state and of the next item of
the data; whoever writes one sees to it that the same state and item give the same bits. Then a run
that was killed and started again ends in the same bits as one that never stopped.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import jax
import numpy as np
from jaxtyping import Float

from jaxrag.engines.progress import progress
from jaxrag.retrieval.manifest import enough_space, replacing
from jaxrag.training.checkpoints import Checkpoints
from jaxrag.types import InputError

METRICS = "metrics.jsonl"

S = TypeVar("S")

Watched = Mapping[str, Float[np.ndarray, " q"]]
"""Figures by name, each with a value for every question; NaN where it says nothing."""

History = Mapping[int, Mapping[str, float | None]]
"""The means of what was watched, by step; None where no question defines a figure."""


class Data(Protocol):
    """Where items come from; Grain's iterators are such."""

    def __next__(self) -> Any:
        """The next item."""
        ...

    def get_state(self) -> Any:
        """The place of the item after it, of JSON values."""
        ...

    def set_state(self, state: Any) -> None:
        """Goes there."""
        ...


def fit(
    state: S,
    data: Data,
    step: Callable[[S, Any, int], tuple[S, Mapping[str, Any]]],
    *,
    steps: int,
    directory: Path,
    what: str,
    save_every: int,
    watch: Callable[[S, int], Watched] | None = None,
    watch_every: int = 0,
    enough: Callable[[S, History], bool] | None = None,
) -> S:
    """Trains, from the newest checkpoint in ``directory`` where there is one.

    Args:
      state: the state that training begins with.
      data: endless.
      step: (state, item, number of the step from 0) -> (state, figures such as {"loss"}); may use
        the given state up.
      steps: how many in all.
      directory: of the run: checkpoints, and metrics.jsonl with a line for each step.
      what: for the progress line.
      save_every: steps from checkpoint to checkpoint; the last step is always saved.
      watch: what is worth knowing of a state now and then, such as recall: of each figure its
        value for every question, or NaN. The means are logged under "watched", the values, with
        which two steps are compared question by question, under "each".
      watch_every: steps from one watching to the next; 0 never watches. Before the first step and
        after the last it is watched in any case.
      enough: asked after each watching, with the state and the means of all so far, whether
        training is to stop there. The history is that of the run, however often it was
        interrupted; after an interruption the last question may come again.

    Returns:
      The state after the last step.

    Raises:
      InputError: a figure is not finite (the step is named), or ``directory`` does not fit.
    """
    if min(steps, save_every) < 1:
        raise InputError(f"steps is {steps} and save_every {save_every}; each is to be at least 1.")
    watching = watch if watch_every else None
    with Checkpoints(directory / "checkpoints") as checkpoints:
        saved = checkpoints.restore(state)
        start = 0 if saved is None else saved.step
        if saved is not None:
            state = saved.state
            data.set_state(saved.data)
        log = _Log(directory / METRICS, start)
        if watching and not start:
            log.write(0, _watched(watching(state, 0)))
        over = enough is not None and log.newest_is_watched and enough(state, log.history)
        with progress(steps, what, done=start) as advance:
            for number in range(start, start if over else steps):
                began = time.monotonic()
                state, figures = step(state, next(data), number)
                figures = _finite(figures, number + 1, checkpoints.newest)
                done = number + 1
                if watching and (done % watch_every == 0 or done == steps):
                    figures |= _watched(watching(state, done))
                log.write(done, {**figures, "seconds": round(time.monotonic() - began, 3)})
                advance(1, f"loss {figures['loss']:.4g}")
                # before the checkpoint: what is to be kept of a state is asked for again without it
                over = enough and log.newest_is_watched and enough(state, log.history)
                if done % save_every == 0 or done == steps or over:
                    checkpoints.save(done, state, data.get_state())
                if over:
                    break
    return state


def _watched(found: Watched) -> dict[str, Any]:
    """Means and values as they are logged: null where they are undefined."""
    known = {name: values[~np.isnan(values)] for name, values in found.items()}
    means = {name: round(float(v.mean()), 4) if len(v) else None for name, v in known.items()}
    each = {
        name: [None if math.isnan(value) else round(value, 4) for value in values.tolist()]
        for name, values in found.items()
    }
    return {"watched": means, "each": each}


def _finite(figures: Mapping[str, Any], step: int, saved: int | None) -> dict[str, Any]:
    """The figures as plain numbers; InputError where one is NaN or infinite."""
    plain = {
        name: float(value) if isinstance(value, jax.Array) else value
        for name, value in figures.items()
    }
    for name, value in plain.items():
        if isinstance(value, float) and not math.isfinite(value):
            kept = f"the newest checkpoint is that of step {saved}" if saved else "none is saved"
            raise InputError(
                f"Step {step}: {name} is {value}. Training stopped here; {kept}. Take a lower "
                "learning rate or a lower clip, or look at that step's data."
            )
    return plain


class _Log:
    """metrics.jsonl: one line a step; of a run that goes on, lines after its checkpoint go."""

    def __init__(self, path: Path, start: int) -> None:
        self._path = path
        self._writes = jax.process_index() == 0
        kept = [line for line in _lines(path) if start and json.loads(line)["step"] <= start]
        found = [json.loads(line) for line in kept]
        self.history = {line["step"]: line["watched"] for line in found if "watched" in line}
        self._newest = start
        if self._writes:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as stream:
                stream.writelines(f"{line}\n".encode() for line in kept)

    @property
    def newest_is_watched(self) -> bool:
        """Whether the history's last entry is of the step that the run stands at."""
        return self._newest in self.history

    def write(self, step: int, figures: Mapping[str, Any]) -> None:
        self._newest = step
        if "watched" in figures:
            self.history[step] = figures["watched"]
        if self._writes:
            with enough_space(self._path), self._path.open("a") as stream:
                stream.write(json.dumps({"step": step, **figures}) + "\n")


def _lines(path: Path) -> list[str]:
    """The whole lines of a file; a last one that was cut short is left out."""
    if not path.exists():
        return []
    return [line for line in path.read_text().split("\n")[:-1] if line]
