"""Somebody's data cannot take this process's time or memory, or end it."""

import time
from typing import Any

import pytest

from jaxrag.core.bounded import Bounded, LimitError
from jaxrag.types import InputError


@pytest.mark.parametrize(
    ("module", "function", "values", "said"),
    [
        ("re", "fullmatch", {"pattern": "(a+)+", "string": "a" * 60 + "!"}, "takes over 0.5 s"),
        ("builtins", "bytes", {"source": 10**10}, "takes over 512 MB of memory"),
        ("os", "_exit", {"status": 3}, r"ends its process \(3\)"),
    ],
)
def test_limits(module: str, function: str, values: dict[str, Any], said: str) -> None:
    called, start = Bounded(module, function, seconds=0.5), time.monotonic()
    for _ in range(2):  # a process that has ended is started again
        with pytest.raises(LimitError, match=said):
            called(**values)
    assert time.monotonic() - start < 20


def test_values_errors_and_the_time_of_each_call() -> None:
    loads = Bounded("json", "loads", seconds=0.5)
    text = "[" + "1," * 400_000 + "1]"  # some 20 ms each
    assert [len(loads(s=text)) for _ in range(40)] == [400_001] * 40
    with pytest.raises(InputError, match="Expecting"):
        loads(s="{")
    assert loads(s="[1]") == [1]
