"""Several processes of one job (`jax.distributed`): each does a share of the work.

All processes must call these functions equally often and in the same order, from one thread: they
wait for each other. Results are those of one process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxrag.types import InputError

T = TypeVar("T")


def is_first() -> bool:
    """Whether this process is the one that writes files; true of the only process."""
    return not jax.process_index()


def share_of(items: Sequence[T]) -> Sequence[T]:
    """Every n-th item, beginning at this process's number, of n processes; all for a single one."""
    return items[jax.process_index() :: jax.process_count()]


def shared(items: Sequence[T], work: Callable[[Sequence[T]], Sequence[Any]]) -> list[Any]:
    """The results of ``work`` for all items, in their order; each process works on its share.

    ``items`` are the same in all processes; ``work`` gives a JSON value for each of some items. Of
    several processes, all get results as JSON returns them. InputError if ``work`` raised it
    anywhere.
    """
    processes = jax.process_count()
    if processes == 1:
        return list(work(items))
    try:
        mine: dict[str, Any] = {"results": list(work(share_of(items)))}
    except InputError as error:  # the others must not wait for results
        mine = {"error": str(error)}
    parts = exchange(mine)
    for number, part in enumerate(parts):
        if "error" in part:
            raise InputError(f"Process {number}: {part['error']}")
    results: list[Any] = [None] * len(items)
    for number, part in enumerate(parts):
        results[number::processes] = part["results"]
    return results


def exchange(mine: Any) -> list[Any]:
    """Exchanges JSON values: what each process gives, in the order of the processes."""
    text = np.frombuffer(json.dumps(mine).encode(), np.uint8)
    lengths = multihost_utils.process_allgather(np.int32(len(text)))
    # a power of two, so that few programs are compiled
    padded = np.zeros(1 << (int(lengths.max()) - 1).bit_length(), np.uint8)
    padded[: len(text)] = text
    rows = multihost_utils.process_allgather(padded)
    return [json.loads(row[:n].tobytes()) for row, n in zip(rows, lengths.tolist(), strict=True)]
