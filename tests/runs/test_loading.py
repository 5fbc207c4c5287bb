"""What stays in memory between runs."""

import weakref
from collections.abc import Callable

import pytest

from jaxrag.runs.loading import KeepNewest


class Opened:
    """As large as an index."""

    def __init__(self, name: str):
        self.name = name
        self.itself = self  # so that only a garbage collection frees it


@pytest.fixture
def opened() -> tuple[KeepNewest[[str], Opened], list[str], Callable[[], list[str]]]:
    """A function that opens something, the names that it was asked for, and what is still there."""
    asked, there = list[str](), list[weakref.ref[Opened]]()

    def living() -> list[str]:
        return [one.name for ref in there if (one := ref())]

    def open_it(name: str) -> Opened:
        assert not living(), "an earlier one is still there"
        asked.append(name)
        one = Opened(name)
        there.append(weakref.ref(one))
        return one

    return KeepNewest(open_it), asked, living


def test_the_newest_is_kept_and_let_go_before_the_next_is_opened(
    opened: tuple[KeepNewest[[str], Opened], list[str], Callable[[], list[str]]],
) -> None:
    open_it, asked, living = opened
    assert open_it("a").name == open_it("a").name == "a" and asked == ["a"]
    assert open_it("b").name == "b" and living() == ["b"]
    assert open_it(name="a").name == "a" and living() == ["a"]
    assert asked == ["a", "b", "a"]


def test_nothing_is_kept_after_clearing_or_an_error() -> None:
    asked = list[str]()

    def open_it(name: str) -> str:
        asked.append(name)
        if name == "broken":
            raise ValueError(name)
        return name

    kept = KeepNewest(open_it)
    kept("a")
    kept.cache_clear()
    kept("a")
    assert asked == ["a", "a"]
    with pytest.raises(ValueError, match="broken"):
        kept("broken")
    kept("a")
    assert asked == ["a", "a", "broken", "a"]
