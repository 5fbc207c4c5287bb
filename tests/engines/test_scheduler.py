import dataclasses
import time

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.core.store import Store, entry_key
from jaxrag.engines.compilation import compilation_seconds
from jaxrag.engines.scheduler import Operation, Request, Scheduler, gather
from jaxrag.types import EngineDown


def make(name="double", function=lambda x: 2 * x, calls=None, **options):
    """An operation over integers that notes each call's payloads in ``calls``."""

    def run(payloads):
        if calls is not None:
            calls.append((name, list(payloads)))
        return [function(payload) for payload in payloads]

    return Operation(
        name=name,
        identity="{}",
        run=run,
        key=str,
        encode=lambda value: str(value).encode(),
        decode=lambda data: int(data),
        cost=lambda payload, value: {name: 1},
        **options,
    )


def run(methods, store=None, **options):
    scheduler = Scheduler(store or Store(None), **options)
    return {outcome.id: outcome for outcome in scheduler.run(list(enumerate(methods)))}


def ask_each(operation, payloads, store=None, **options):
    """Runs a question of one request for each payload."""

    async def method(x):
        return await Request(operation, x)

    return run([lambda x=x: method(x) for x in payloads], store, **options)


def test_questions_with_different_numbers_of_steps_share_calls():
    calls = []
    double, triple = make(calls=calls), make("triple", lambda x: 3 * x, calls)

    async def method(i):
        value = await Request(double, i)
        if i % 2:
            value = await Request(triple, value)
        return await Request(double, value + 100)

    found = run([lambda i=i: method(i) for i in range(4)])
    # 0 -> 0 -> 200; 1 -> 2 -> 6 -> 212; 2 -> 4 -> 208; 3 -> 6 -> 18 -> 236
    assert [found[i].value for i in range(4)] == [200, 212, 208, 236]
    # All four double; then two wait to triple and two to double, and of equal groups the one that
    # came first goes first; then the others' last doubling joins in one call.
    assert calls == [
        ("double", [0, 1, 2, 3]), ("double", [100, 104]), ("triple", [2, 6]),
        ("double", [106, 118]),
    ]  # fmt: skip
    assert found[1].cost == {"double": 2, "triple": 1}


def test_the_largest_group_goes_first():
    calls = []
    double, triple = make(calls=calls), make("triple", calls=calls)

    async def method(i):
        return await Request(double if i == 0 else triple, i)

    run([lambda i=i: method(i) for i in range(3)])
    assert [name for name, _ in calls] == ["triple", "double"]


def test_identical_requests_are_sent_once_but_counted_per_question():
    calls = []
    double = make(calls=calls)

    async def method():
        return await Request(double, 7)

    found = run([method] * 5)
    assert calls == [("double", [7])]
    assert all(o.value == 14 and o.cost == {"double": 1} for o in found.values())
    assert [found[i].store_hits for i in range(5)] == [0, 1, 1, 1, 1]


def test_a_stored_result_makes_no_call_and_costs_the_same():
    store, calls = Store(None), []
    double = make(calls=calls)

    async def method(i):
        return await Request(double, await Request(double, i))

    methods = [lambda i=i: method(i) for i in range(10)]
    first = run(methods, store)
    count = len(calls)
    again = run(methods, store)
    assert len(calls) == count
    for i in range(10):
        assert again[i].value == first[i].value and again[i].cost == first[i].cost
        assert again[i].store_hits == 2 and again[i].spent == 0
        assert again[i].seconds == first[i].seconds > 0 and again[i].untimed == 0
    # 1's second request is 2's first one: both take its time, which was spent once
    assert first[1].store_hits == 1 and first[1].spent < first[1].seconds


def test_results_without_seconds_are_counted():
    store, double = Store(None), make()
    store.put("double", "{}", {entry_key("double", "{}", "3"): b"6"})  # of an older store
    found = ask_each(double, (2, 3), store)
    assert [(found[i].value, found[i].untimed) for i in range(2)] == [(4, 0), (6, 1)]


def test_compilation_is_not_in_the_seconds():
    def function(x):
        if x:  # half a second of compilation with tracing inside, then a tenth of work
            time.sleep(0.5)
            for seconds in (0.1, 0.3, 0.5):
                jax.monitoring.record_event_duration_secs("/jax/core/compile/a", seconds)
        time.sleep(0.1)
        return int(jax.jit(lambda y: y + x)(1))

    found = ask_each(make(function=function, batch=1), range(2))
    before = compilation_seconds()
    jax.jit(lambda y: y - 1)(1)  # JAX's events have the names that are counted
    assert compilation_seconds() > before
    for outcome in found.values():
        assert 0.1 <= outcome.seconds < 0.45


def test_the_check_before_comes_once_before_the_first_call_and_not_if_all_is_stored():
    calls, store = [], Store(None)
    double = make(calls=calls)

    async def method(i):
        return await Request(double, await Request(double, i))

    methods = [lambda i=i: method(i) for i in range(2)]
    run(methods, store, before=lambda: calls.append("check"))
    assert calls[0] == "check" and calls.count("check") == 1 and len(calls) == 3
    run(methods, store, before=lambda: calls.append("check"))
    assert calls.count("check") == 1


def test_batches_are_cut_and_sorted_by_size():
    calls = []
    ask_each(make(calls=calls, batch=2, size=lambda x: x), (5, 3, 4, 1, 2))
    assert [payloads for _, payloads in calls] == [[1, 2], [3, 4], [5]]


def test_a_failing_request_does_not_fail_its_batch():
    def function(x):
        if x == 5:
            raise ValueError("five is right out")
        return x

    found = ask_each(make(function=function), range(9))
    assert str(found[5].error) == "five is right out" and found[5].value is None
    assert [found[i].value for i in range(9) if i != 5] == [0, 1, 2, 3, 4, 6, 7, 8]


def test_a_bug_in_a_method_is_recorded_with_its_question():
    async def bad():
        raise KeyError("oops")

    async def wrong():
        class Foreign:
            def __await__(self):
                yield 3

        await Foreign()

    async def good():
        return await Request(make(), 1)

    found = run([bad, wrong, good])
    assert isinstance(found[0].error, KeyError)
    assert "not a jaxrag request" in str(found[1].error)
    assert found[2].value == 2


def test_a_dead_engine_stops_the_run_and_keeps_results():
    store = Store(None)
    alive = make("alive")

    def die(x):
        raise EngineDown("the server is gone")

    async def method(i):
        value = await Request(alive, i)
        return await Request(make("dead", die), value)

    with pytest.raises(EngineDown, match="gone"):
        run([lambda i=i: method(i) for i in range(3)], store)
    assert store.producers()[0].entries == 3


def test_too_few_results_are_an_error():
    operation = Operation("short", "{}", lambda xs: xs[1:], str, lambda v: b"", lambda d: None)
    with pytest.raises(EngineDown, match="0 results for 1"):
        ask_each(operation, [1])


def test_gather_waits_for_all_and_keeps_order():
    calls = []
    double = make(calls=calls)

    async def twice(i):
        return await Request(double, await Request(double, i))

    async def method():
        return await gather(twice(1), Request(double, 5), gather(twice(2), twice(3)), gather())

    assert run([method])[0].value == [4, 10, [8, 12], []]
    assert calls[0] == ("double", [1, 5, 2, 3])


def test_a_failed_branch_fails_the_gather_and_drops_its_siblings():
    calls = []
    double, triple = make(calls=calls), make("triple", calls=calls)

    def refuse(x):
        raise ValueError("no")

    async def slow():
        await Request(double, 1)
        return await Request(triple, 1)

    async def method():
        try:
            await gather(Request(make("bad", refuse), 1), slow())
        except ValueError:
            return (await gather(Request(double, 10), Request(double, 20)))[1]

    assert run([method])[0].value == 40
    assert not any(name == "triple" for name, _ in calls)


def test_callers_get_separate_copies_of_a_result():
    operation = Operation(
        "list", "{}", lambda xs: [[x] for x in xs], str,
        lambda value: str(value[0]).encode(), lambda data: [int(data)],
    )  # fmt: skip

    async def method():
        value = await Request(operation, 1)
        value.append("mine")
        return value

    found = run([method] * 3)
    assert all(found[i].value == [1, "mine"] for i in range(3))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=5), max_size=12),
    st.integers(1, 15),
    st.integers(1, 7),
)
def test_answers_do_not_depend_on_batching(plans, live, batch):
    double = make(batch=batch)
    triple = make("triple", lambda x: 3 * x, batch=batch)

    async def method(plan):
        total = 0
        for is_double, number in plan:
            total += await Request(double if is_double else triple, number + total % 7)
        return total

    def by_hand(plan):
        total = 0
        for is_double, number in plan:
            total += (2 if is_double else 3) * (number + total % 7)
        return total

    calls: list[tuple[str, int]] = []
    methods = [lambda plan=plan: method(plan) for plan in plans]
    found = run(methods, live=live, on_batch=lambda name, size: calls.append((name, size)))
    assert [found[i].value for i in range(len(plans))] == [by_hand(plan) for plan in plans]
    again: list[tuple[str, int]] = []
    run(methods, live=live, on_batch=lambda name, size: again.append((name, size)))
    assert again == calls  # the same inputs make the same batches


def test_results_that_end_early_survive_a_kill_in_their_batch(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxrag.engines.scheduler.STORE_SECONDS", 0.0)
    asked = []

    def each(payloads, killed_after=None):
        for index in reversed(range(len(payloads))):  # those with fewer tokens end first
            if killed_after == len(payloads) - 1 - index:
                raise KeyboardInterrupt
            asked.append(payloads[index])
            yield index, 2 * payloads[index]

    def answers(each):
        store = Store(tmp_path / "store.sqlite")
        return ask_each(dataclasses.replace(make(), each=each), range(5), store)

    with pytest.raises(KeyboardInterrupt):
        answers(lambda payloads: each(payloads, killed_after=3))
    assert asked == [4, 3, 2]
    found = answers(each)
    assert asked == [4, 3, 2, 1, 0]
    assert [found[i].value for i in range(5)] == [0, 2, 4, 6, 8]
    assert [found[i].store_hits for i in range(5)] == [0, 0, 1, 1, 1]


def test_a_faulty_request_keeps_what_ended_before_it_in_its_batch(monkeypatch):
    asked = []

    def each(payloads):
        asked.append(list(payloads))
        for index, payload in enumerate(payloads):
            if payload == 3:
                raise ValueError("three")
            yield index, 2 * payload

    operation = dataclasses.replace(make(), each=each)
    monkeypatch.setattr("jaxrag.engines.scheduler.STORE_SECONDS", 0.0)
    stored = []
    found = ask_each(operation, range(6), on_batch=lambda name, size: stored.append(size))
    assert stored == [1, 1, 1, 1, 1]
    assert [found[i].value for i in range(6)] == [0, 2, 4, None, 8, 10]
    assert str(found[3].error) == "three"
    assert asked == [[0, 1, 2, 3, 4, 5], [3], [4, 5]]  # 0, 1 and 2 had ended
