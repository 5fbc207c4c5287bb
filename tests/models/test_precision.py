import jax
import jax.numpy as jnp
import pytest

from jaxrag.models.precision import compute_dtype, matmul_precision
from jaxrag.types import InputError


@pytest.mark.parametrize(("backend", "name"), [("cpu", "float32"), ("tpu", "bfloat16")])
def test_the_default_is_the_devices(backend, name, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert compute_dtype() == jnp.dtype(name)
    assert compute_dtype("bfloat16") == jnp.bfloat16  # a setting wins


def test_other_dtypes_are_refused():
    with pytest.raises(InputError, match="'float16'; allowed are 'float32' and 'bfloat16'"):
        compute_dtype("float16")


@pytest.mark.parametrize(("dtype", "found"), [("float32", "HIGHEST"), ("bfloat16", "DEFAULT")])
def test_float32_is_multiplied_as_such(dtype, found):
    with matmul_precision(jnp.dtype(dtype)):
        text = jax.jit(lambda x: x @ x).lower(jnp.ones((4, 4), dtype)).as_text()
    assert ("precision = [HIGHEST, HIGHEST]" in text) == (found == "HIGHEST")
