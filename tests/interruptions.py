"""Stops what is done at one of its writes, as a kill or a full disk does."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jaxrag.types import InputError

WRITES = ("fsync", "rename", "replace", "unlink", "mkdir")


@contextlib.contextmanager
def interrupted(at: float, error: BaseException) -> Iterator[list[int]]:
    """Write number ``at``, from 0, raises an error, as do all after it; gives the writes so far.

    Nothing is removed after a KeyboardInterrupt: a killed process does not tidy up.
    """
    done = [0]

    def failing(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def write(*given: Any, **named: Any) -> Any:
            done[0] += 1
            if done[0] > at + 1 and name == "unlink":
                return None
            if done[0] > at:
                raise error
            return real(*given, **named)

        return write

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES:
            if name != "unlink" or not isinstance(error, OSError):  # which needs no space
                patch.setattr(os, name, failing(name))
        yield done


def stopped(act: Callable[[], object], at: float, error: BaseException) -> int:
    """Does something until write number ``at``; returns the number of its writes."""
    with interrupted(at, error) as done:
        if at == float("inf"):
            act()
        else:
            full = isinstance(error, OSError)
            with pytest.raises(
                InputError if full else KeyboardInterrupt, match="full" if full else None
            ):
                act()
    return done[0]
