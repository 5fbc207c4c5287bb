import threading
import time

import hypothesis
import hypothesis.strategies as st
import pytest

from jaxrag.core.background import check_stopped, in_background


@hypothesis.settings(deadline=None, max_examples=30)
@hypothesis.given(st.lists(st.integers()), st.integers(1, 5))
def test_the_same_items_in_the_same_order(items, ahead):
    assert list(in_background(iter(items), ahead=ahead)) == items


def test_it_is_ahead_and_not_further():
    made = []

    def items():
        for i in range(10):
            made.append(i)
            yield i

    source = in_background(items(), ahead=3)
    assert next(source) == 0
    deadline = time.monotonic() + 10
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert made == [0, 1, 2, 3, 4]  # one used, three waiting, one that waits for a place
    assert list(source) == [*range(1, 10)]


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt()])
def test_an_error_comes_after_the_items_before_it(error):
    def items():
        yield from range(3)
        raise error

    source, found = in_background(items(), ahead=2), []
    with pytest.raises(type(error)):
        for item in source:
            found.append(item)
    assert found == [0, 1, 2]


def test_closing_it_ends_the_thread_and_closes_the_source():
    closed, before = [], threading.active_count()

    def items():
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    source = in_background(items(), ahead=2)
    next(source)
    assert threading.active_count() == before + 1
    source.close()
    assert threading.active_count() == before and closed == [True]


def test_a_long_item_is_given_up_where_it_looks():
    ended = []

    def items():
        yield 0
        try:
            while True:
                check_stopped()
                time.sleep(0.001)
        finally:
            ended.append(True)

    source = in_background(items(), ahead=2)
    assert next(source) == 0
    source.close()
    assert ended == [True]
    check_stopped()  # nothing to stop in this thread
