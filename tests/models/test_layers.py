"""Parameters of layers: those that are given, and the errors where they do not fit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.errors import ScopeParamNotFoundError, ScopeParamShapeError

from jaxrag.models.layers import Linear

X = jnp.array([[1.0, 2.0]])
WEIGHT, BIAS = np.array([[3.0, 4.0], [5.0, 6.0]]), np.array([0.5, -0.5])


def apply(**params: Any) -> jax.Array:
    found: Any = Linear(2).apply({"params": params}, X)
    return found


def test_given_parameters_are_used() -> None:
    # 1 * 3 + 2 * 4 + 0.5 and 1 * 5 + 2 * 6 - 0.5
    assert apply(weight=WEIGHT, bias=BIAS).tolist() == [[11.5, 16.5]]


def test_missing_parameters_and_other_shapes_are_refused() -> None:
    with pytest.raises(ScopeParamNotFoundError, match='"bias"'):
        apply(weight=WEIGHT)
    with pytest.raises(ScopeParamShapeError, match=r'"weight".*\(2, 3\)'):
        apply(weight=np.ones((2, 3)), bias=BIAS)
