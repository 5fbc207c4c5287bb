"""Equations of one question, compiled for the host's CPU.

    >>> from jaxrag.functional.uncertainty import mean_nll
    >>> u = on_host(mean_nll, static=("rule",))
    >>> u(np.float32([-1, -2]), where=np.array([True, True]), ends=False, rule="paper")
    array(1.5, dtype=float32)

For a few numbers an accelerator's launch would take far longer than the computation, and their last
bits would depend on the kind of device.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxrag.types import InputError


def on_host(
    equation: Callable[..., Any], *, static: Sequence[str] = (), compiled: bool = True
) -> Callable[..., Any]:
    """The equation on a CPU: it takes JAX or NumPy arrays and returns NumPy arrays.

    A call raises InputError if JAX_PLATFORMS leaves out the CPU.

    Args:
      equation: a pure function of arrays.
      static: names of arguments that are not arrays; it is compiled anew for each of their values.
      compiled: whether to compile by jit. Without it, Python floats are compared in float64.
    """
    function = jax.jit(equation, static_argnames=static) if compiled else equation

    @functools.wraps(equation)
    def call(*args: Any, **options: Any) -> Any:
        args, options = jax.device_get((args, options))  # an accelerator's would be computed there
        with jax.default_device(_cpu()):
            return jax.device_get(function(*args, **options))

    return call


def _cpu() -> Any:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise InputError(
            "JAX has no CPU, which computes the equations of one question: add cpu to "
            f"JAX_PLATFORMS, which is {os.environ.get('JAX_PLATFORMS')!r}, after the accelerator."
        ) from error
