"""Checkpoints of a training run; a run resumed from one ends in the same bytes.

A checkpoint holds the whole state as ``{path: array}``, the position in the data, and a checksum
of each array. Orbax renames it when it is complete, so a run that is killed while it saves keeps
the previous one.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax import lax

from jaxrag.core.hashing import canonical, digest
from jaxrag.models.parameters import flatten, unflatten
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")


class Saved(NamedTuple):
    """A restored checkpoint, made after ``step`` steps.

    Arrays of ``state`` have the template's sharding; ``data`` is the position in the data.
    """

    step: int
    state: Any
    data: Any


class Checkpoints:
    """The newest ``keep`` checkpoints in a directory; leaving ``with`` waits for the last write.

    The directory is for checkpoints alone, and is created if missing. InputError if it cannot be,
    or what describes a checkpoint is damaged.
    """

    def __init__(self, directory: str | Path, *, keep: int = 2) -> None:
        self._directory = Path(directory).absolute()
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, cleanup_tmp_directories=True)
        try:
            self._manager = ocp.CheckpointManager(self._directory, options=options)
        except OSError as error:
            raise InputError(f"{directory}: cannot write checkpoints there: {error}") from error
        except Exception as error:  # Orbax raises what its parts happen to raise
            raise InputError(
                f"{directory}: the metadata of a checkpoint is damaged ({str(error)[:200]}). "
                "Delete that checkpoint; the same command then resumes from another, if there is "
                "one."
            ) from error

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *error: object) -> None:
        self._manager.close()

    @property
    def newest(self) -> int | None:
        """The step of the newest checkpoint."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any, data: Any) -> None:
        """Saves a state in the background; its arrays may be donated at once.

        InputError if it cannot be written, such as on a full disk; earlier checkpoints are kept.

        Args:
          step: how many steps have been made.
          state: a tree of arrays. Of several processes, arrays on devices of one process alone are
            the same in all of them, and the first saves them.
          data: the position in the data, of JSON values.
        """
        arrays = flatten(state)
        record: dict[str, Any] = {"data": data, "arrays": described(arrays)}
        record["seal"] = _seal(record)
        # of several processes, Orbax takes no array of one of them
        saved = {n: np.asarray(x) if _is_of_one_process(x) else x for n, x in arrays.items()}
        try:
            self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(saved),
                    record=ocp.args.JsonSave(record),
                ),
            )
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self._directory}: step {step} could not be saved: {error} Make room and start "
                "the same command again; it resumes from the newest checkpoint."
            ) from error

    def wait(self) -> None:
        """Waits until every saved checkpoint is on disk."""
        self._manager.wait_until_finished()

    def restore(self, template: Any) -> Saved | None:
        """The newest checkpoint, or None where there is none.

        ``template`` is a state with the same tree, shapes and dtypes, and the sharding that the
        restored arrays get. InputError if the checkpoint is damaged, or of another model or
        optimiser.
        """
        if (step := self.newest) is None:
            return None
        where = self._directory / str(step)
        arrays = flatten(template)
        record = self._read(where, step, record=ocp.args.JsonRestore())["record"]
        if not _is_sealed(record):
            raise _damaged(where, "the hash of its record differs")
        if "arrays" not in record:
            raise InputError(
                f"{where} was written by an earlier version of jaxrag, whose trainings cannot be "
                "gone on with: use another directory."
            )
        self._compare(where, arrays, record["arrays"])
        abstract = {
            name: np.zeros(x.shape, x.dtype)
            if _is_of_one_process(x)
            else jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
            for name, x in arrays.items()
        }
        saved = self._read(where, step, state=ocp.args.StandardRestore(abstract))["state"]
        placed = {
            name: jax.device_put(x, arrays[name].sharding) if isinstance(x, np.ndarray) else x
            for name, x in saved.items()
        }
        if damaged := sorted(n for n, d in described(placed).items() if d != record["arrays"][n]):
            raise _damaged(where, f"the checksum of {damaged[0]} differs")
        _log.info("resuming from step %d (%s)", step, where)
        return Saved(step, unflatten(placed, template), record["data"])

    def _read(self, where: Path, step: int, **items: Any) -> Any:
        hook = sys.unraisablehook
        sys.unraisablehook = functools.partial(_show_but_abandoned_reads, hook)
        try:
            restored = self._manager.restore(step, args=ocp.args.Composite(**items))
        except Exception as error:  # Orbax raises what its parts happen to raise
            raise _damaged(where, str(error).strip().splitlines()[0][:200]) from error
        sys.unraisablehook = hook  # after an error it stays: abandoned reads end later
        return restored

    def _compare(
        self, where: Path, arrays: Mapping[str, Any], held: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Refuses a checkpoint whose arrays have other names, shapes or dtypes."""
        for name in sorted(set(arrays) ^ set(held)):
            kind = "lacks" if name in arrays else "also holds"
            raise InputError(
                f"{where} {kind} {name}: it is of another model or optimiser. Use the settings "
                "that it was made with, or another directory."
            )
        for name, array in arrays.items():
            shape, dtype = list(array.shape), str(array.dtype)
            if (held[name]["shape"], held[name]["dtype"]) != (shape, dtype):
                raise InputError(
                    f"{where}: {name} is {held[name]['dtype']} {held[name]['shape']}, this run has "
                    f"{dtype} {shape}. Use the settings that it was made with, or another "
                    "directory."
                )


def _show_but_abandoned_reads(hook: Callable[[Any], Any], unraisable: Any) -> None:
    """Shows an error of a thread, but not that of a read that Orbax began before another failed."""
    if str(unraisable.exc_value) != "Event loop is closed":
        hook(unraisable)


def _seal(record: Mapping[str, Any]) -> str:
    """The hash of a record, but for its seal."""
    return digest(canonical({name: value for name, value in record.items() if name != "seal"}))


def _is_sealed(record: Any) -> bool:
    """Whether a record that was read is one that was written."""
    try:
        return isinstance(record, dict) and record.get("seal") == _seal(record)
    except ValueError:  # it holds NaN
        return False


def _is_of_one_process(array: jax.Array) -> bool:
    """Whether an array is on devices of this process alone, though there are others."""
    return jax.process_count() > 1 and array.is_fully_addressable


def _damaged(where: Path, reason: str) -> InputError:
    return InputError(
        f"{where} is damaged ({reason}). Delete that directory; the same command then resumes from "
        "the previous checkpoint, if there is one."
    )


def described(arrays: Mapping[str, jax.Array]) -> dict[str, dict[str, Any]]:
    """Shape, dtype and checksum of each array; of several processes, all call it."""
    sums = jax.device_get(checksums(dict(arrays)))
    return {
        name: {"shape": [*array.shape], "dtype": str(array.dtype), "checksum": int(sums[name])}
        for name, array in arrays.items()
    }


def values_name(tree: Any) -> str:
    """A name of a tree's values, by which stored results of other parameters are told apart."""
    return digest(canonical(described(flatten(tree))))


@jax.jit
def checksums(tree: Any) -> Any:
    """The sum over an array's entries of bits * (2 * index + 1), modulo 2^32, uint32.

    It changes with every bit, and with the order of entries. Devices compute it where the array
    is, in any order: integers do not round.
    """

    def checksum(array: jax.Array) -> jax.Array:
        bits = array.view(f"uint{8 * array.dtype.itemsize}").astype(jnp.uint32)
        index = jnp.uint32(0)
        for axis, size in enumerate(array.shape):
            index = index * jnp.uint32(size) + lax.broadcasted_iota(jnp.uint32, array.shape, axis)
        return jnp.sum(bits * (2 * index + 1), dtype=jnp.uint32)

    return jax.tree.map(checksum, tree)
