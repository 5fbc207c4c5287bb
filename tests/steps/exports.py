"""Cases of `tests/test_export.py`: the jitted functions that methods call."""

import jax
import jax.numpy as jnp

from jaxrag.steps.reader import _mean_nll


def _mean_nll_case():
    shape = jax.ShapeDtypeStruct
    arguments = {"where": shape((16,), jnp.bool_), "ends": shape((), jnp.bool_), "rule": "paper"}
    return _mean_nll, (shape((16,), jnp.float32),), arguments


CASES = {"jaxrag.steps.reader._mean_nll": _mean_nll_case}
