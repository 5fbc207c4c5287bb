"""Runs methods written for one question over thousands of questions in large batches.

A method is a coroutine that awaits `Request`s. The scheduler advances every live question until all
of them wait, takes results from the store where they are known, and sends the largest group of
pending requests to its engine as one call. The rule uses neither clock nor randomness: the same
inputs give the same batches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from jaxrag.core.store import Store, entry_key
from jaxrag.engines.compilation import compilation_seconds
from jaxrag.types import EngineDown

STORE_SECONDS = 5.0
"""How often results that end before the others of their batch are stored."""


@dataclasses.dataclass(frozen=True, eq=False)
class Operation:
    """A kind of request: a function of an engine with its settings.

    Attributes:
      name: such as "generate".
      identity: canonical JSON of engine and settings; with ``key`` it determines the result.
      run: computes the results of a list of payloads.
      each: computes them likewise, and yields each with its payload's index as it ends. Such
        results are stored every `STORE_SECONDS`, which is then all that a kill loses.
      key: canonical text of a payload.
      encode, decode: a result to bytes and back; every caller gets an own copy.
      cost: counts of one request, such as ``{"llm_calls": 1}``, from payload and result.
      size: sort key that groups payloads of similar cost.
      batch: limit of payloads in one call, and so of what a kill can lose.
      submit: for an engine that batches by itself: starts one payload. Such requests are sent at
        once, and ``run`` is not called.
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
    each: Callable[[list[Any]], Iterator[tuple[int, Any]]] | None = None
    submit: Callable[[Any], Future[Any]] | None = None


class Request(NamedTuple):
    """A pending call; awaiting it gives the result."""

    operation: Operation
    payload: Any

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)


class Gather(NamedTuple):
    """Requests or coroutines that run concurrently; made by `gather`."""

    parts: tuple[Awaitable[Any], ...]

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        return (yield self)


def gather(*parts: Awaitable[Any]) -> Awaitable[list[Any]]:
    """Awaits several requests or coroutines concurrently; results in their order."""
    return Gather(parts)


class Workers:
    """A pool of daemon threads: unlike the standard library's, Ctrl-C ends a run at once."""

    def __init__(self, count: int) -> None:
        self._count, self._threads = count, 0
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._queue = queue.SimpleQueue()

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        """Calls ``work`` in one of the threads."""
        future: Future[Any] = Future()
        self._queue.put((future, functools.partial(work, *args)))
        if self._threads < self._count:
            self._threads += 1
            threading.Thread(target=self._run, daemon=True).start()
        return future

    def close(self) -> None:
        """Cancels queued calls and ends the threads."""
        with contextlib.suppress(queue.Empty):
            while item := self._queue.get_nowait():
                item[0].cancel()
        for _ in range(self._threads):
            self._queue.put(None)
        self._threads = 0

    def _run(self) -> None:
        while item := self._queue.get():
            future, work = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)


Returned = tuple[bytes, Operation, Any, Future[Any], float]
"""A request that has returned: key, operation, pending entry, value or error, and seconds, its
share of the time since the last return."""


class RequestsInFlight:
    """Submitted requests, by key."""

    def __init__(self) -> None:
        self._flying: dict[bytes, tuple[Operation, Any]] = {}
        self._done: queue.SimpleQueue[tuple[bytes, Future[Any]]] = queue.SimpleQueue()
        self._last = time.perf_counter()

    def __len__(self) -> int:
        return len(self._flying)

    def find(self, key: bytes) -> Any:
        """The pending entry of the request with this key, or None."""
        return self._flying[key][1] if key in self._flying else None

    def start(self, key: bytes, operation: Operation, pending: Any) -> None:
        """Submits a request."""
        assert operation.submit is not None
        if not self._flying:
            self._last = time.perf_counter()
        self._flying[key] = (operation, pending)
        try:
            future = operation.submit(pending.payload)
        except Exception as error:  # refused at once: treated as a returned error
            future = Future()
            future.set_exception(error)
        future.add_done_callback(lambda done: self._done.put((key, done)))

    def collect(self, *, wait: bool) -> list[Returned]:
        """All requests that have returned; with ``wait``, at least one."""
        arrived = [self._done.get()] if wait and self._flying else []
        while not self._done.empty():
            arrived.append(self._done.get())
        if not arrived:
            return []
        now = time.perf_counter()
        share, self._last = (now - self._last) / len(arrived), now
        return [(key, *self._flying.pop(key), future, share) for key, future in arrived]


class QuestionOutcome(NamedTuple):
    """Outcome of a question: a value or an error, and its cost.

    ``cost`` and ``seconds`` are those of each request's first computation (its share of the batch,
    compilation apart), as if nothing had been stored, so they are the same in a resumed run; an
    older store does not know those of the ``untimed``. ``store_hits`` and ``spent``, the seconds
    that were not saved by the store, are of this run.
    """

    id: Any
    value: Any
    error: Exception | None
    cost: dict[str, int]
    seconds: float
    untimed: int
    spent: float
    store_hits: int


@dataclasses.dataclass
class _LiveQuestion:
    """Cost so far of one live question; see `QuestionOutcome`."""

    id: Any
    cost: Counter[str] = dataclasses.field(default_factory=Counter)
    seconds: float = 0.0
    untimed: int = 0
    spent: float = 0.0
    store_hits: int = 0


class _Branches:
    """The results that a `gather` waits for."""

    def __init__(self, parent: _Coroutine, count: int) -> None:
        self.parent, self.missing, self.failed = parent, count, False
        self.results: list[Any] = [None] * count


@dataclasses.dataclass(slots=True, eq=False)
class _Coroutine:
    """A coroutine in progress: the question's own, or one branch of a `gather`."""

    coroutine: Any
    question: _LiveQuestion
    branches: _Branches | None = None
    position: int = 0

    @property
    def abandoned(self) -> bool:
        """Whether a sibling branch has failed, so that the result is not needed."""
        branches = self.branches
        while branches is not None:
            if branches.failed:
                return True
            branches = branches.parent.branches
        return False


class _Pending(NamedTuple):
    payload: Any
    tasks: list[_Coroutine]


def _results(
    operation: Operation, items: list[tuple[bytes, _Pending]]
) -> Iterator[tuple[dict[bytes, bytes], float]]:
    """Yields encoded results by key, in groups, and the seconds of each, compilation apart."""
    payloads = [pending.payload for _, pending in items]
    group: dict[bytes, bytes] = {}
    started, compiled = time.perf_counter(), compilation_seconds()
    results = operation.each(payloads) if operation.each else _all(operation, payloads)
    for count, (index, value) in enumerate(results, 1):
        group[items[index][0]] = operation.encode(value)
        now = time.perf_counter()
        if count == len(items) or (operation.each and now - started > STORE_SECONDS):
            spent = now - started - (compilation_seconds() - compiled)
            yield group, max(0.0, spent) / len(group)
            group, started, compiled = {}, time.perf_counter(), compilation_seconds()


def _all(operation: Operation, payloads: list[Any]) -> Iterator[tuple[int, Any]]:
    values = operation.run(payloads)
    if len(values) != len(payloads):
        raise EngineDown(
            f"{operation.name} gave {len(values)} results for {len(payloads)} requests"
        )
    return enumerate(values)


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


class Scheduler:
    """Runs coroutines, one per question, over shared engines; see the module's docstring.

    Args:
      store: of results.
      live: limit of questions in progress.
      on_batch: called after each engine call with the operation's name and the batch's size.
      before: called once, before the first engine call; not if all results are stored.
    """

    def __init__(
        self,
        store: Store,
        *,
        live: int = 4096,
        on_batch: Callable[[str, int], None] = lambda name, size: None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self.store, self.live, self.on_batch = store, live, on_batch
        self._before = functools.cache(before)
        self._ready: deque[tuple[_Coroutine, Any, Exception | None]] = deque()
        self._fresh: dict[bytes, tuple[Operation, _Pending]] = {}
        self._groups: dict[tuple[str, str], dict[bytes, _Pending]] = {}
        self._operations: dict[tuple[str, str], Operation] = {}
        self._finished: list[QuestionOutcome] = []
        self._flight = RequestsInFlight()

    def run(
        self, questions: Iterable[tuple[Any, Callable[[], Coroutine[Any, Any, Any]]]]
    ) -> Iterator[QuestionOutcome]:
        """Yields each question's outcome as it ends.

        A question is an id and a function that starts its coroutine.
        """
        try:
            yield from self._run(iter(questions))
        finally:  # coroutines that never started must be closed, or Python warns
            for task, _, _ in self._ready:
                task.coroutine.close()

    def _run(self, waiting: Iterator[Any]) -> Iterator[QuestionOutcome]:
        alive = 0
        while True:
            for id, start in itertools.islice(waiting, self.live - alive):
                self._ready.append((_Coroutine(start(), _LiveQuestion(id)), None, None))
                alive += 1
            while self._ready:
                while self._ready:
                    self._step(*self._ready.popleft())
                self._look_up()
            finished, self._finished = self._finished, []
            alive -= len(finished)
            yield from finished
            if finished:  # admit others first
                continue
            if self._groups:
                self._send_largest()
                self._land(self._flight.collect(wait=False))
            elif self._flight:
                self._land(self._flight.collect(wait=True))
            elif not alive:
                return
            else:
                raise RuntimeError("questions are alive but none waits for a request")

    def _step(self, task: _Coroutine, value: Any, error: Exception | None) -> None:
        if task.abandoned:
            task.coroutine.close()
            return
        try:
            awaited = task.coroutine.throw(error) if error else task.coroutine.send(value)
        except StopIteration as stop:
            self._end(task, stop.value, None)
        except EngineDown:
            raise
        except Exception as failure:  # recorded with the question; the others go on
            self._end(task, None, failure)
        else:
            self._wait(task, awaited)

    def _wait(self, task: _Coroutine, awaited: Any) -> None:
        if isinstance(awaited, Request):
            operation = awaited.operation
            try:
                key = entry_key(operation.name, operation.identity, operation.key(awaited.payload))
            except Exception as failure:  # a payload that cannot be keyed fails its question
                self._ready.append((task, None, failure))
                return
            group = self._groups.get((operation.name, operation.identity), {})
            if flying := self._flight.find(key):
                flying.tasks.append(task)
            elif key in group:
                group[key].tasks.append(task)
            elif key in self._fresh:
                self._fresh[key][1].tasks.append(task)
            else:
                self._fresh[key] = (operation, _Pending(awaited.payload, [task]))
        elif isinstance(awaited, Gather):
            branches = _Branches(task, len(awaited.parts))
            for position, part in enumerate(awaited.parts):
                branch = _Coroutine(_as_coroutine(part), task.question, branches, position)
                self._ready.append((branch, None, None))
            if not awaited.parts:
                self._ready.append((task, [], None))
        else:
            failure = TypeError(f"a method awaited {type(awaited).__name__}, not a jaxrag request")
            self._ready.append((task, None, failure))

    def _end(self, task: _Coroutine, value: Any, error: Exception | None) -> None:
        branches, question = task.branches, task.question
        if branches is None:
            facts: dict[str, Any] = dict(vars(question), cost=dict(sorted(question.cost.items())))
            self._finished.append(QuestionOutcome(value=value, error=error, **facts))
        elif error is not None:
            branches.failed = True
            self._ready.append((branches.parent, None, error))
        else:
            branches.results[task.position] = value
            branches.missing -= 1
            if branches.missing == 0:
                self._ready.append((branches.parent, branches.results, None))

    def _look_up(self) -> None:
        """Answers new requests from the store and queues the others for their engine."""
        fresh, self._fresh = self._fresh, {}
        stored = self.store.get_timed(list(fresh)) if fresh else {}
        for key, (operation, pending) in fresh.items():
            if key in stored:
                self._answer(operation, pending, *stored[key], hit=True)
            elif operation.submit is not None:
                self._before()
                self._flight.start(key, operation, pending)
            else:
                kind = (operation.name, operation.identity)
                self._operations[kind] = operation
                self._groups.setdefault(kind, {})[key] = pending

    def _answer(
        self,
        operation: Operation,
        pending: _Pending,
        data: bytes,
        seconds: float | None,
        *,
        hit: bool = False,
    ) -> None:
        for index, task in enumerate(pending.tasks):
            value = operation.decode(data)
            task.question.cost.update(operation.cost(pending.payload, value))
            shared = hit or index > 0
            task.question.seconds += seconds or 0.0
            task.question.untimed += seconds is None
            task.question.spent += 0.0 if shared else seconds or 0.0
            task.question.store_hits += shared
            self._ready.append((task, value, None))

    def _send_largest(self) -> None:
        self._before()
        kind = max(self._groups, key=lambda kind: len(self._groups[kind]))  # the first of equals
        group, operation = self._groups.pop(kind), self._operations[kind]
        pending = [item for item in group.items() if not all(t.abandoned for t in item[1].tasks)]
        items = sorted(pending, key=lambda item: operation.size(item[1].payload))
        for start in range(0, len(items), operation.batch):
            self._send(operation, items[start : start + operation.batch])

    def _send(self, operation: Operation, items: list[tuple[bytes, _Pending]]) -> None:
        """Runs one batch; what is left of a failing one is halved until one request fails alone."""
        kept: dict[bytes, tuple[bytes, float]] = {}
        failure: Exception | None = None
        try:
            for encoded, seconds in _results(operation, items):
                self._put(operation, encoded, dict.fromkeys(encoded, seconds))
                kept.update({key: (data, seconds) for key, data in encoded.items()})
        except EngineDown:
            raise
        except Exception as error:
            failure = error
        for key, pending in items:
            if key in kept:
                self._answer(operation, pending, *kept[key])
        left = [item for item in items if item[0] not in kept]
        if len(items) > 1:
            middle = len(left) // 2
            for half in filter(None, (left[:middle], left[middle:])):
                self._send(operation, half)
        else:
            self._ready.extend((task, None, failure) for _, one in left for task in one.tasks)

    def _put(
        self, operation: Operation, encoded: dict[bytes, bytes], seconds: dict[bytes, float]
    ) -> None:
        """Stores computed results."""
        self.store.put(operation.name, operation.identity, encoded, seconds=seconds)
        self.on_batch(operation.name, len(encoded))

    def _land(self, landed: list[Returned]) -> None:
        """Stores and delivers returned requests of engines that batch by themselves."""
        encoded: dict[bytes, bytes] = {}
        down: EngineDown | None = None
        for key, operation, pending, future, _ in landed:
            try:
                encoded[key] = operation.encode(future.result())
            except EngineDown as failure:  # raised once the others have been stored
                down = down or failure
            except Exception as failure:
                self._ready.extend((task, None, failure) for task in pending.tasks)
        answered = [request for request in landed if request[0] in encoded]
        for operation in {operation for _, operation, *_ in answered}:
            spent = {key: seconds for key, own, *_, seconds in answered if own is operation}
            self._put(operation, {key: encoded[key] for key in spent}, spent)
        for key, operation, pending, _, seconds in answered:
            self._answer(operation, pending, encoded[key], seconds)
        if down:
            raise down
