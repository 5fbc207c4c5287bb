from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxrag.models.parameters import shapes, template


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
