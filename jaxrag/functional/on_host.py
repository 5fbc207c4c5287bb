"""Small equations of one question run on the host, whatever the default device is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax


def on_host(equation: Callable[..., Any]) -> Callable[..., Any]:
    """An equation, jitted or not, that runs on the host's CPU and returns NumPy arrays.

    On an accelerator one call of a small equation waits for its launch far longer than it computes,
    and its last bits depend on the kind of device.
    """

    @functools.wraps(equation)
    def run(*args: Any, **options: Any) -> Any:
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            return jax.device_get(equation(*args, **options))

    return run
