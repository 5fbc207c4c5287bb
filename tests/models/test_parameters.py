from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.parameters import shapes, template, to_devices
from jaxrag.types import InputError


class Network(NamedTuple):
    width: int


def test_a_template_is_traced_once_for_equal_networks() -> None:
    traced = []

    def initialise(network: Network) -> dict[str, dict[str, jax.Array]]:
        traced.append(network)
        return {"layer": {"weight": jnp.zeros((2, network.width))}}

    for width in (3, 3, 4, 3):
        tree = template(initialise, Network(width))
        assert isinstance(tree["layer"]["weight"], jax.ShapeDtypeStruct)
        assert shapes(tree) == {"layer.weight": (2, width)}
    assert traced == [Network(3), Network(4)]


def test_a_full_device_names_the_parameter_and_ways_out(monkeypatch) -> None:
    """The third of three arrays of 1,000 numbers does not fit: 8 kB of the model are placed."""
    real, calls = jax.device_put, []

    def put(array, sharding=None):
        calls.append(array)
        if len(calls) == 3:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating")
        return real(array, sharding)

    monkeypatch.setattr(jax, "device_put", put)
    arrays = {name: np.zeros(1000, np.float32) for name in ("a.weight", "b.weight", "c.weight")}
    told = r"full at c\.weight, after 8 kB of .*tensor_parallel.*quantization int8.*memory_gb"
    with pytest.raises(InputError, match=told):
        to_devices(arrays, jnp.float32, None)


def test_another_error_of_the_device_is_raised_as_it_is(monkeypatch) -> None:
    def put(array, sharding=None):
        raise jax.errors.JaxRuntimeError("INTERNAL: the device is lost")

    monkeypatch.setattr(jax, "device_put", put)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the device is lost"):
        to_devices({"a.weight": np.zeros(2, np.float32)}, jnp.float32, None)
