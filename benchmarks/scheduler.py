"""Overhead of the scheduler and store per request, 5,000 questions live.

    python -m benchmarks.scheduler

The engine does nothing, so all time is overhead. Peer: asyncio, which batches requests with the
standard library alone: a future per request and a loop that drains the queue into one call whenever
nothing else is ready. asyncio stores nothing; the store's share is shown separately.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from jaxrag.core.store import Store
from jaxrag.engines.scheduler import Operation, Request, Scheduler

QUESTIONS, STEPS, ROUNDS = 5000, 6, 5


def engine(payloads: list[str]) -> list[str]:
    return [payload + "!" for payload in payloads]


OPERATION = Operation("echo", "{}", engine, str, str.encode, bytes.decode, batch=256)


async def method(number: int) -> str:
    text = f"question {number}"
    for _ in range(STEPS):
        text = await Request(OPERATION, text)
    return text


def scheduled(path: Path | None) -> None:
    store = Store(path)
    questions = ((i, lambda i=i: method(i)) for i in range(QUESTIONS))
    outcomes = list(Scheduler(store, live=QUESTIONS).run(questions))
    assert len(outcomes) == QUESTIONS and outcomes[0].value.endswith("!" * STEPS)
    store.close()


async def _with_asyncio() -> None:
    queue: list[tuple[str, asyncio.Future[str]]] = []
    done = False

    async def ask(text: str) -> str:
        future = asyncio.get_running_loop().create_future()
        queue.append((text, future))
        return await future

    async def one(number: int) -> str:
        text = f"question {number}"
        for _ in range(STEPS):
            text = await ask(text)
        return text

    async def drain() -> None:
        while not done:
            await asyncio.sleep(0)
            batch, queue[:] = queue[:256], queue[256:]
            for (_, future), value in zip(batch, engine([t for t, _ in batch]), strict=True):
                future.set_result(value)

    drainer = asyncio.create_task(drain())
    await asyncio.gather(*(one(i) for i in range(QUESTIONS)))
    done = True
    await drainer


def microseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) / (QUESTIONS * STEPS) * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rounds: dict[str, list[float]] = {}
        for number in range(ROUNDS):
            path = Path(folder) / f"{number}.sqlite"
            for name, run in {
                "asyncio, nothing kept": lambda: asyncio.run(_with_asyncio()),
                "jaxrag, store in memory": lambda: scheduled(None),
                "jaxrag, store on disk": lambda path=path: scheduled(path),
                "jaxrag, all in the store": lambda path=path: scheduled(path),
            }.items():
                rounds.setdefault(name, []).append(microseconds(run))
    medians = {name: statistics.median(values) for name, values in rounds.items()}
    peer = medians["asyncio, nothing kept"]
    print(f"{QUESTIONS:,} live questions, {STEPS} requests each, medians of {ROUNDS} rounds")
    for name, value in medians.items():
        print(f"{name:26} {value:7.1f} us/request   {value / peer:5.2f}x asyncio")
    worst = max(medians.values())
    print(f"goal: below 1,000 us/request: {'met' if worst < 1000 else 'MISSED'} ({worst:.0f} us)")


if __name__ == "__main__":
    main()
