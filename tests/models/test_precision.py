import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.precision import compute_dtype, linear, matmul_precision
from jaxrag.types import InputError
from tests.versions import bfloat16_on_cpus


@pytest.mark.parametrize(("backend", "name"), [("cpu", "float32"), ("tpu", "bfloat16")])
def test_the_default_is_the_devices(backend, name, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert compute_dtype() == jnp.dtype(name)
    assert compute_dtype("bfloat16") == jnp.bfloat16  # a setting wins


def test_other_dtypes_are_refused():
    with pytest.raises(InputError, match="'float16'; allowed are 'float32', 'bfloat16'"):
        compute_dtype("float16")
    assert compute_dtype("float16", half=True) == jnp.float16
    with pytest.raises(InputError, match="'float8'; allowed are 'float32', 'bfloat16', 'float16'"):
        compute_dtype("float8", half=True)


@pytest.mark.parametrize(("dtype", "found"), [("float32", "HIGHEST"), ("bfloat16", "DEFAULT")])
def test_float32_products_have_float32_precision(dtype, found):
    with matmul_precision(jnp.dtype(dtype)):
        text = jax.jit(lambda x: x @ x).lower(jnp.ones((4, 4), dtype)).as_text()
    assert ("precision = [HIGHEST, HIGHEST]" in text) == (found == "HIGHEST")


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=bfloat16_on_cpus)])
def test_products_are_summed_in_float32_and_rounded_once(dtype):
    random = np.random.default_rng(0)
    x = jnp.asarray(random.normal(size=(2, 3, 512)), dtype)
    weight = jnp.asarray(random.normal(size=(5, 512)), jnp.float32)
    found = linear(x, weight)
    assert found.dtype == dtype
    exact = np.asarray(x, np.float64) @ np.asarray(weight.astype(dtype), np.float64).T
    # half a unit in the last place; and what 512 sums of float32 lose at most, each below 128
    allowed = np.abs(exact) * float(jnp.finfo(dtype).eps) / 2 + 512 * 2**-24 * 128
    assert (np.abs(np.asarray(found, np.float64) - exact) <= allowed).all()
    text = jax.jit(linear).lower(x, weight).as_text()
    assert "-> tensor<2x3x5xf32>" in text.split("dot_general")[1]


def test_a_gpu_rounds_products_before_it_writes_them(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    x, weight = jnp.ones((2, 3, 8), jnp.bfloat16), jnp.ones((5, 8), jnp.float32)

    def loss(x, weight):
        return linear(x, weight).astype(jnp.float32).sum()

    # the product, then those of its derivatives to x and, in float32, to the weights
    text = jax.jit(jax.grad(loss, (0, 1))).lower(x, weight).as_text()
    found = [part.split("->")[1].split(">")[0].strip() for part in text.split("dot_general")[1:]]
    assert sorted(found) == ["tensor<2x3x8xbf16", "tensor<5x8xf32"]
    assert "-> tensor<2x3x5xbf16>" in jax.jit(linear).lower(x, weight).as_text()
