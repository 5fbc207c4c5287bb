from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.functional import ais
from jaxrag.functional.on_host import on_host
from jaxrag.types import InputError

VECTORS = np.random.default_rng(0).normal(size=(7, 16)).astype(np.float32)
POOL = {"k": 3, "where": np.arange(5) < 4}


def test_numpy_arrays_with_the_values_of_the_jitted_equation() -> None:
    arguments = VECTORS[0], VECTORS[1], VECTORS[2:], np.arange(5)
    selected = on_host(ais.select_passages, static=("k", "score"))(*arguments, **POOL)
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(selected))
    jax.tree.map(np.testing.assert_array_equal, selected, ais.select_passages(*arguments, **POOL))


def test_arrays_of_other_devices_are_computed_with_on_the_first_cpu(monkeypatch: Any) -> None:
    computed = []
    get = jax.device_get
    monkeypatch.setattr(jax, "device_get", lambda tree: (computed.append(tree), get(tree))[1])
    x, y = (jax.device_put(np.float32(i), jax.devices()[i]) for i in (2, 3))
    with jax.default_device(jax.devices()[4]):
        assert on_host(jnp.add)(x, y) == 5
    assert computed[-1].device == jax.devices("cpu")[0]


def test_jax_without_a_cpu_is_named(monkeypatch: Any) -> None:
    def no_cpu(backend: str) -> list[Any]:
        raise RuntimeError(f"Unknown backend {backend}")

    monkeypatch.setattr(jax, "local_devices", no_cpu)
    with pytest.raises(InputError, match="add cpu to JAX_PLATFORMS"):
        on_host(jnp.add)(1, 2)
