"""Engines that take requests one by one: nothing is lost, nothing sent twice."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.core.store import Store
from jaxrag.engines.scheduler import Operation, Request, Scheduler, gather
from jaxrag.types import EngineDown


def never(payloads):
    raise AssertionError("run is not for engines with submit")


def operation(submit, name="double"):
    return Operation(
        name=name,
        identity="{}",
        run=never,
        key=str,
        encode=lambda value: str(value).encode(),
        decode=lambda data: int(data),
        cost=lambda payload, value: {"calls": 1},
        submit=submit,
    )


def run(methods, store, **options):
    return {o.id: o for o in Scheduler(store, **options).run(list(enumerate(methods)))}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 8), st.integers(1, 40))
def test_results_do_not_depend_on_the_order_of_arrival(payloads, threads, live):
    asked, lock = [], threading.Lock()

    def work(x):
        with lock:
            asked.append(x)
        time.sleep(0.0005 * (x * 7 % 5))
        return 2 * x

    with ThreadPoolExecutor(threads) as pool:
        double = operation(lambda x: pool.submit(work, x))

        async def method(x):
            first, again = await gather(Request(double, x), Request(double, x))
            return first + await Request(double, 100 + again)

        found = run([lambda x=x: method(x) for x in payloads], Store(None), live=live)
    # 2 x + 2 (100 + 2 x)
    assert [found[i].value for i in range(len(payloads))] == [6 * x + 200 for x in payloads]
    assert all(o.cost == {"calls": 3} for o in found.values())
    assert len(asked) == len(set(asked))


def test_an_error_fails_its_own_question_only():
    def work(x):
        if x == 3:
            raise ValueError("three")
        return x

    with ThreadPoolExecutor(2) as pool:
        op = operation(lambda x: pool.submit(work, x))

        async def method(x):
            return await Request(op, x)

        found = run([lambda x=x: method(x) for x in range(6)], Store(None))
    assert str(found[3].error) == "three"
    assert [found[i].value for i in (0, 1, 2, 4, 5)] == [0, 1, 2, 4, 5]


def test_a_request_refused_at_once_fails_its_question():
    def submit(x):
        raise ValueError("closed")

    async def method():
        return await Request(operation(submit), 1)

    assert str(run([method], Store(None))[0].error) == "closed"


def test_a_dead_engine_stops_the_run_and_returned_results_are_kept():
    store, calls = Store(None), []

    def submit(x):
        calls.append(x)
        future: Future[int] = Future()
        if x == 4:
            future.set_exception(EngineDown("gone"))
        else:
            future.set_result(2 * x)
        return future

    op = operation(submit)

    async def method(x):
        return await Request(op, x)

    with pytest.raises(EngineDown, match="gone"):
        run([lambda x=x: method(x) for x in range(6)], store)
    calls.clear()
    run([lambda x=x: method(x) for x in (0, 1, 2, 3, 5)], store)
    assert calls == []  # all of them had been stored


def test_a_batch_engine_runs_while_a_streaming_request_is_pending():
    """While one request hangs, another question's batch requests go on to their end."""
    release, order = threading.Event(), []

    def slow(x):
        release.wait(10)
        order.append("slow")
        return x

    def batch(payloads):
        order.extend(["batch"] * len(payloads))
        if 7 in payloads:
            release.set()
        return payloads

    with ThreadPoolExecutor(1) as pool:
        waiting = operation(lambda x: pool.submit(slow, x), "slow")
        quick = Operation(
            name="quick", identity="{}", run=batch, key=str,
            encode=lambda value: str(value).encode(), decode=lambda data: int(data),
        )  # fmt: skip

        async def one():
            return await Request(waiting, 1)

        async def two():
            for x in (5, 6, 7):
                await Request(quick, x)
            return 2

        found = run([one, two], Store(None))
    assert [found[0].value, found[1].value] == [1, 2]
    assert order == ["batch", "batch", "batch", "slow"]
