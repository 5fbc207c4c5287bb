"""What a method awaits: requests to engines, alone or side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
    """One kind of request: an engine's function with its settings.

    Attributes:
      name: what is done, such as "generate".
      identity: canonical JSON of the engine and settings; with ``key`` it determines the result.
      run: computes the results of a list of payloads.
      key: canonical text of a payload.
      encode, decode: a result to bytes and back; every reader gets an object of its own.
      cost: what one request counts for, such as ``{"llm_calls": 1}``.
      size: sort key that brings payloads of like cost together.
      batch: most payloads sent in one call, and so the most that a kill can lose.
      submit: for an engine that batches by itself: starts one payload and gives its future. Such
        requests go out at once, and ``run`` is not called.
    """

    name: str
    identity: str
    run: Callable[[list[Any]], Sequence[Any]]
    key: Callable[[Any], str]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    cost: Callable[[Any, Any], dict[str, int]] = lambda payload, value: {}
    size: Callable[[Any], int] = lambda payload: 0
    batch: int = 128
    submit: Callable[[Any], Future[Any]] | None = None


class Request(NamedTuple):
    """A pending call; awaiting it gives the result."""

    operation: Operation
    payload: Any

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)


class Gather(NamedTuple):
    """Requests or coroutines that are awaited side by side; made by `gather`."""

    parts: tuple[Awaitable[Any], ...]

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        return (yield self)


def gather(*parts: Awaitable[Any]) -> Awaitable[list[Any]]:
    """Awaits several requests or coroutines side by side; results in their order."""
    return Gather(parts)
