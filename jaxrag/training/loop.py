"""The training loop: steps, metrics in a file, checkpoints, and resuming after an interruption.

A step is a function of the state, the next item of the data and the step's number. It is dispatched
and not awaited: while the devices compute, the figures of the step before are read and the next
item is made. If equal arguments give equal bytes, a run that was killed ends in the bytes of a
whole one.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import jax
import numpy as np
from jaxtyping import Float

from jaxrag.core.durable_files import explain_limits, open_to_append, write_text
from jaxrag.core.json_text import parse_json
from jaxrag.core.progress import progress, tell
from jaxrag.core.tracking import Track, tracking
from jaxrag.training.checkpoints import Checkpoints
from jaxrag.types import InputError

METRICS = "metrics.jsonl"

S = TypeVar("S")

Evaluation = Mapping[str, Float[np.ndarray, " q"]]
"""Metrics by name, each with a value for every question; NaN where a metric is undefined."""

History = Mapping[int, Mapping[str, float | None]]
"""The mean of each evaluated metric, by step; None where it is undefined for every question."""


Step = Callable[[Any, Any, int], tuple[Any, Mapping[str, Any]]]
"""(state, item, number of the step from 0) -> (state, metrics such as {"loss"}); dispatches its
computation, and may donate the given state."""


class Data(Protocol):
    """An endless source of items, such as Grain's iterators."""

    def __next__(self) -> Any:
        """The next item."""
        ...

    def get_state(self) -> Any:
        """The position in the data, as JSON values."""
        ...

    def set_state(self, state: Any) -> None:
        """Moves to a position that `get_state` returned."""
        ...


def fit(
    state: S,
    data: Data,
    step: Step,
    *,
    steps: int,
    directory: Path,
    what: str,
    save_every: int,
    evaluate: Callable[[S, int], Evaluation] | None = None,
    evaluate_every: int = 0,
    should_stop: Callable[[S, History], bool] | None = None,
) -> S:
    """Trains, resuming from the newest checkpoint in ``directory``; returns the last state.

    InputError if a metric is not finite (the step is named), or ``directory`` is of another run.

    Args:
      state: the initial state.
      data: endless.
      step: see `Step`.
      steps: total number of steps.
      directory: where the run keeps its checkpoints, and metrics.jsonl with a line for each step.
      what: label of the progress line.
      save_every: steps between checkpoints; the last step is always saved.
      evaluate: (state, steps made) -> metrics by question, such as recall. The means are logged
        under "watched"; the values, for paired comparisons between steps, under "each".
      evaluate_every: steps between evaluations; 0 never evaluates. Otherwise the initial and the
        last state are evaluated, too.
      should_stop: (state, history of all evaluations) -> whether to stop; called after each
        evaluation. The history includes those before an interruption; after one, the last call may
        be repeated.
    """
    if min(steps, save_every) < 1:
        raise InputError(f"steps is {steps} and save_every {save_every}; each must be at least 1.")
    evaluating = evaluate if evaluate_every else None
    with Checkpoints(directory / "checkpoints") as checkpoints, contextlib.ExitStack() as stack:
        saved = checkpoints.restore(state)
        start = 0 if saved is None else saved.step
        if saved is not None:
            state = saved.state
            data.set_state(saved.data)
        first = jax.process_index() == 0
        track = stack.enter_context(tracking(directory, after=start, writes=first))
        log = _Log(directory / METRICS, start, track if first else None)
        if evaluating and not start:
            tell(f"{what}: evaluation before the first step")
            log.write(0, _means_and_values(evaluating(state, 0)))
        stop = should_stop is not None and log.is_evaluated and should_stop(state, log.history)
        if start < steps and not stop:
            tell(f"{what}: {steps - start:,} steps to make; the first is compiled before it runs")
        with progress(steps, what, done=start) as advance:

            def finish(number: int, metrics: Mapping[str, Any]) -> None:
                metrics = _finite(metrics, number, checkpoints.newest)
                log.write(number, metrics)
                advance(1, f"loss {metrics['loss']:.4g}")

            before: tuple[int, Mapping[str, Any]] | None = None
            for number in range(start + 1, start if stop else steps + 1):
                began = time.monotonic()
                state, metrics = step(state, next(data), number - 1)  # dispatched, not awaited
                if before is not None:
                    finish(*before)  # waits for the step before, while this one computes
                due = evaluating and (number % evaluate_every == 0 or number == steps)
                saving = number % save_every == 0 or number == steps
                if due or saving:
                    metrics = _finite(metrics, number, checkpoints.newest)  # no NaN is saved
                if evaluating and due:
                    metrics = {**metrics, **_means_and_values(evaluating(state, number))}
                before = number, {**metrics, "seconds": round(time.monotonic() - began, 3)}
                if due or saving:
                    finish(*before)
                    before = None
                # before the checkpoint: after an interruption in between, this call is repeated
                stop = due and should_stop is not None and should_stop(state, log.history)
                if saving or stop:
                    checkpoints.save(number, state, data.get_state())
                if stop:
                    break
    return state


def _means_and_values(evaluation: Evaluation) -> dict[str, Any]:
    """Means and values as they are logged: null where they are undefined."""
    defined = {name: values[~np.isnan(values)] for name, values in evaluation.items()}
    means = {name: round(float(v.mean()), 4) if len(v) else None for name, v in defined.items()}
    each = {
        name: [None if math.isnan(value) else round(value, 4) for value in values.tolist()]
        for name, values in evaluation.items()
    }
    return {"watched": means, "each": each}


def _finite(metrics: Mapping[str, Any], step: int, saved: int | None) -> dict[str, Any]:
    """The metrics as plain numbers; InputError where one is NaN or infinite."""
    plain = {
        name: float(value) if isinstance(value, jax.Array) else value
        for name, value in metrics.items()
    }
    for name, value in plain.items():
        if isinstance(value, float) and not math.isfinite(value):
            newest = f"the newest checkpoint is that of step {saved}" if saved else "none is saved"
            raise InputError(
                f"Step {step}: {name} is {value}. Training stopped; {newest}. Use a lower "
                "learning rate or a lower clip, or check the data of that step."
            )
    return plain


class _Log:
    """metrics.jsonl: one line a step; a resumed run removes the lines after its checkpoint.

    Without ``track``, in a process beside the first, nothing is written.
    """

    def __init__(self, path: Path, start: int, track: Track | None) -> None:
        self._path, self._track, self._newest = path, track, start
        keep = read_steps if track is None else keep_steps
        lines = keep(path, until=start or -1)
        self.history = {line["step"]: line["watched"] for line in lines if "watched" in line}

    @property
    def is_evaluated(self) -> bool:
        """Whether the newest step has been evaluated."""
        return self._newest in self.history

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        self._newest = step
        if "watched" in metrics:
            self.history[step] = metrics["watched"]
        if self._track is not None:
            append_steps(self._path, [{"step": step, **metrics}])
            self._track(step, metrics)


def append_steps(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Adds lines, each with its "step", to a file of JSON lines."""
    with explain_limits(path), open_to_append(path) as stream:
        stream.writelines(map(_text, lines))


def keep_steps(path: Path, *, until: int) -> list[dict[str, Any]]:
    """Removes the lines after a step, which an interruption lost; returns the others."""
    lines = read_steps(path, until=until)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(map(_text, lines)))
    return lines


def read_steps(path: Path, *, until: float = math.inf) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl up to a step, without an incomplete last one.

    InputError, naming file and line, where a line is not a step of a training.
    """
    lines = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1] if path.exists() else (), 1):
        try:
            lines.append(_checked_step(parse_json(line.decode())))
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{path}:{number}: not a step of a training ({error}); remove the line"
            ) from error
    return [line for line in lines if line["step"] <= until]


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False) + "\n"


def _checked_step(line: Any) -> dict[str, Any]:
    if not isinstance(line, dict) or type(line.get("step")) is not int:
        raise TypeError("an object with a whole number 'step' is needed")
    for name, value in {**line.get("watched", {}), **line.get("each", {})}.items():
        for item in value if isinstance(value, list) else [value]:
            if item is not None and not isinstance(item, (int, float)):
                raise TypeError(f"{name!r} is not numeric")
    return line
