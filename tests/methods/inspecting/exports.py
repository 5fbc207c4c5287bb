"""Cases of `tests/test_export.py`: the jitted functions of DRAGIN and SeaKR."""

import jax
import jax.numpy as jnp

from jaxrag.methods.inspecting.dragin import _heaviest, _scores
from jaxrag.methods.inspecting.seakr import _uncertainty


def _of(dtype, *shape):
    return jax.ShapeDtypeStruct(shape, dtype)


def _scores_case():
    real, number, flag = jnp.float32, jnp.int32, jnp.bool_
    arrays = (_of(real, 16), _of(real, 16, 16), _of(flag, 16), _of(number, 16), _of(flag, 16))
    return _scores, (*arrays, _of(flag)), {}


def _chosen_case():
    arrays = (_of(jnp.float32, 32), _of(jnp.int32, 32), _of(jnp.bool_, 16), _of(jnp.int32))
    return _heaviest, arrays, {}


def _uncertainty_case():
    options = {"where": _of(jnp.bool_, 20), "alpha": _of(jnp.float32)}
    return _uncertainty, (_of(jnp.float32, 20, 64),), options


CASES = {
    "jaxrag.methods.inspecting.dragin._scores": _scores_case,
    "jaxrag.methods.inspecting.dragin._heaviest": _chosen_case,
    "jaxrag.methods.inspecting.seakr._uncertainty": _uncertainty_case,
}
