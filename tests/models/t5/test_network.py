"""The T5 network: positions, logits, cache, dropout."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrag.models.cache import empty_cache
from jaxrag.models.t5.checkpoint import load_t5
from jaxrag.models.t5.decoding import score
from jaxrag.models.t5.network import T5, distance_buckets, relative_buckets, shift_right
from tests.models.t5 import small_t5
from tests.models.t5.small_t5 import CONFIGS

FLOAT32 = jnp.dtype("float32")
KINDS = sorted(CONFIGS)


def load(path: Path, kind: str, **changes: Any) -> tuple[T5, Any, dict[str, np.ndarray]]:
    tensors = small_t5.write(path, CONFIGS[kind], **changes)
    return *load_t5(path, dtype=FLOAT32), tensors


@partial(jax.jit, static_argnames="model")
def forward(model: T5, params: Any, *arrays: Any) -> jax.Array:
    """Logits; compiled once for all tests of a model."""
    return model.apply({"params": params}, *arrays)


def sources(lengths: tuple[int, ...] = (9, 45, 1, 30)) -> tuple[np.ndarray, np.ndarray]:
    """Right-padded random ids, and which are there; the padding is not the pad token."""
    random = np.random.default_rng(1)
    where = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return random.integers(1, 60, where.shape).astype(np.int32), where


def answers(rows: int = 4, length: int = 50) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 60, (rows, length)).astype(np.int32)


def test_buckets_worked_by_hand() -> None:
    # 8 buckets up to distance 16, causal: distances 0..3 are their own; then
    # 4 + floor(4 log(d/4) / log(4)): d = 5 -> 4 + floor(.64) = 4, d = 6 -> 4 + floor(1.17) = 5,
    # d = 8 -> 4 + 2 = 6, d = 11 -> 4 + floor(2.92) = 6, d = 12 -> 4 + floor(3.17) = 7,
    # d = 16 -> min(8, 7), and 7 ever after. Later keys count as distance 0.
    relative = jnp.array([0, -1, -3, -4, -5, -6, -8, -11, -12, -16, -17, -999, 1, 50])
    found = relative_buckets(relative, buckets=8, max_distance=16, causal=True)
    assert found.tolist() == [0, 1, 3, 4, 4, 5, 6, 6, 7, 7, 7, 7, 0, 0]
    # bidirectional, 4 a side: 0 and 1 are their own; then 2 + floor(2 log(d/2) / log(8)):
    # d = 2 -> 2, d = 5 -> 2 + floor(.88) = 2, d = 6 -> 2 + floor(1.06) = 3. Later keys: 4 more.
    relative = jnp.array([0, -1, -2, -5, -6, -16, -99, 1, 2, 5, 6, 99])
    found = relative_buckets(relative, buckets=8, max_distance=16, causal=False)
    assert found.tolist() == [0, 1, 2, 2, 3, 3, 3, 5, 6, 6, 7, 7]


@given(st.integers(2, 40), st.integers(1, 200))
def test_buckets_of_distances_grow_by_steps_of_one(buckets: int, more: int) -> None:
    found = distance_buckets(buckets, buckets // 2 + more)
    assert found[0] == 0 and found[-1] == buckets - 1
    assert (np.diff(found) >= 0).all()
    assert (found[: buckets // 2] == np.arange(buckets // 2)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_the_float64_reference(kind: str, tmp_path: Path) -> None:
    model, params, tensors = load(tmp_path, kind)
    (tokens, where), targets = sources(), answers()
    found = forward(model, params, tokens, where, targets)
    for row, length in enumerate(where.sum(1)):
        want = small_t5.reference_logits(CONFIGS[kind], tensors, tokens[row, :length], targets[row])
        assert np.abs(want).max() > 1
        np.testing.assert_allclose(found[row], want, atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    "kind, chunk",
    [("1.1", 1), ("mixed", 7)]
    + [
        pytest.param(*more, marks=pytest.mark.slow)
        for more in (("1.0", 1), ("1.0", 7), ("1.1", 7), ("mixed", 1))
    ],
)
def test_cached_logits_equal_uncached_logits(kind: str, chunk: int, tmp_path: Path) -> None:
    model, params, _ = load(tmp_path, kind)
    (tokens, where), targets = sources(), answers(length=21)
    want = forward(model, params, tokens, where, targets)

    def apply(*args: Any, method: str, **kwargs: Any) -> Any:
        return model.apply({"params": params}, *args, method=method, **kwargs)

    @jax.jit
    def step(part: Any, cache: Any, memory: Any, slot: Any) -> Any:
        hidden, cache = apply(
            part, cache=cache, memory=memory, where=where, slot=slot, method="step"
        )
        return apply(hidden, method="logits"), cache

    @jax.jit
    def read(tokens: Any) -> Any:
        return apply(apply(tokens, where, method="encode"), method="remember")

    memory = read(tokens)
    cache = empty_cache(model.config, 4, 28, FLOAT32)  # more slots than tokens
    for start in range(0, 21, chunk):
        part = targets[:, start : start + chunk]
        found, cache = step(part, cache, memory, start)
        np.testing.assert_allclose(found, want[:, start : start + chunk], atol=2e-5, rtol=0)


def test_scores_are_the_log_softmax_of_the_reference(tmp_path: Path) -> None:
    model, params, tensors = load(tmp_path, "mixed")  # it starts with token 2
    (tokens, where), targets = sources(), answers()
    found = np.asarray(score(model, params, tokens, where, targets))
    assert shift_right(jnp.array([[7, 8, 9]]), model.config).tolist() == [[2, 7, 8]]
    for row, length in enumerate(where.sum(1)):
        before = [2, *targets[row, :-1]]
        logits = small_t5.reference_logits(CONFIGS["mixed"], tensors, tokens[row, :length], before)
        every = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        np.testing.assert_allclose(found[row], every[range(50), targets[row]], atol=3e-5, rtol=0)


@pytest.mark.slow
def test_every_parameter_has_a_gradient(tmp_path: Path) -> None:
    model, params, _ = load(tmp_path, "1.1")
    (tokens, where), targets = sources(), answers()

    @jax.jit
    @jax.grad
    def slopes_of(params: Any) -> Any:
        return score(model, params, tokens, where, targets).mean()

    slopes = slopes_of(params)
    for path, slope in jax.tree.leaves_with_path(slopes):
        assert np.isfinite(slope).all() and np.abs(slope).max() > 0, path


@pytest.mark.slow
def test_bfloat16_is_near_float32(tmp_path: Path) -> None:
    model, params, _ = load(tmp_path, "1.1")
    (tokens, where), targets = sources(), answers(4, 5)
    half, rounded = load_t5(tmp_path, dtype=jnp.dtype("bfloat16"))
    assert {leaf.dtype for leaf in jax.tree.leaves(rounded)} == {jnp.dtype("bfloat16")}
    found = forward(half, rounded, tokens, where, targets)
    want = forward(model, params, tokens, where, targets)
    assert found.dtype == jnp.float32
    # 8 bits of mantissa through 3 + 1 layers
    assert np.abs(found - want).mean() < 0.05 * np.abs(want).mean()
