import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxrag.functional import uncertainty

FEW = settings(max_examples=40, deadline=None)
T = 6
MEAN_NLL = jax.jit(uncertainty.mean_nll, static_argnames="rule")
LOGPROBS = hnp.arrays(np.float32, T, elements=st.floats(-20, 0, width=32))


def padded(*logprobs: float) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities padded with junk that must not count."""
    row = np.full(T, np.nan, np.float32)
    row[: len(logprobs)] = logprobs
    return jnp.array(row), jnp.arange(T) < len(logprobs)


def nll(*logprobs: float, ends: bool, rule: uncertainty.Rule = "paper") -> float:
    row, where = padded(*logprobs)
    return float(uncertainty.mean_nll(row, where=where, ends=ends, rule=rule))


def test_mean_nll_worked_by_hand() -> None:
    # Tokens 1, 2 and the end token 9: (1 + 2) / 2 without it, (1 + 2 + 9) / 3 had it counted.
    assert nll(-1, -2, -9, ends=True) == 1.5
    assert nll(-1, -2, -9, ends=False) == 4.0  # stopped by length: 9 is a word
    # The released code drops the last token either way.
    assert nll(-1, -2, -9, ends=True, rule="released") == 1.5
    assert nll(-1, -2, -9, ends=False, rule="released") == 1.5


@pytest.mark.parametrize("rule", ["paper", "released"])
def test_empty_answers_are_infinitely_uncertain(rule: uncertainty.Rule) -> None:
    assert nll(ends=False, rule=rule) == math.inf
    assert nll(-0.5, ends=True, rule=rule) == math.inf


def test_one_token_cut_by_length() -> None:
    assert nll(-0.5, ends=False) == 0.5
    assert nll(-0.5, ends=False, rule="released") == math.inf


def test_a_token_of_probability_0_is_infinitely_uncertain() -> None:
    assert nll(-0.5, -math.inf, -0.1, ends=True) == math.inf
    # An impossible end token does not count.
    assert nll(-0.5, -math.inf, ends=True) == 0.5


@FEW
@given(LOGPROBS, st.integers(0, T), st.booleans(), st.sampled_from(["paper", "released"]))
def test_equals_float64_and_jit(logprobs, length, ends, rule) -> None:
    where = jnp.arange(T) < length
    kept = logprobs[:length].astype(float)
    kept = kept[:-1] if (ends or rule == "released") else kept
    expected = -kept.mean() if kept.size else np.inf
    arguments = {"where": where, "ends": jnp.array(ends), "rule": rule}
    plain = uncertainty.mean_nll(jnp.array(logprobs), **arguments)
    np.testing.assert_allclose(plain, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(MEAN_NLL(jnp.array(logprobs), **arguments), plain, rtol=1e-6)


def test_vmap_over_answers() -> None:
    rows, where = map(jnp.stack, zip(padded(-1, -3), padded(-2), padded(), strict=True))
    ends = jnp.array([False, False, False])
    batched = jax.vmap(lambda row, real, end: uncertainty.mean_nll(row, where=real, ends=end))(
        rows, where, ends
    )
    assert batched.tolist() == [2.0, 2.0, math.inf]


def test_gradient_of_mean_nll_is_finite() -> None:
    for logprobs in ((-1.0, -2.0, -3.0), (-1.0,), ()):
        row, where = padded(*logprobs)
        slope = jax.grad(partial(uncertainty.mean_nll, where=where, ends=True))(row)
        kept = max(len(logprobs) - 1, 0)
        expected = [-1 / max(kept, 1)] * kept + [0] * (T - kept)
        np.testing.assert_allclose(slope, expected)


def test_trigger_at_the_threshold() -> None:
    u = jnp.array([0.004, 0.005, 0.006], jnp.float32)
    assert uncertainty.trigger(u, 0.005).tolist() == [False, False, True]
    assert uncertainty.trigger(u, 0.005, rule="released").tolist() == [False, True, True]


@pytest.mark.parametrize("rule", ["paper", "released"])
def test_trigger_at_the_ends(rule: uncertainty.Rule) -> None:
    u = jnp.array([0.0, 1e-9, 2.0, jnp.inf, jnp.nan])
    assert uncertainty.trigger(u, 0.0, rule=rule).all()
    # Rounded to exactly 0: certain for any positive threshold.
    assert uncertainty.trigger(u, 1e-3, rule=rule).tolist() == [False, False, True, True, True]
    assert uncertainty.trigger(u, jnp.inf, rule=rule).tolist() == [False] * 3 + [True] * 2


@FEW
@given(
    hnp.arrays(np.float32, 8, elements=st.floats(0, 10, width=32)),
    st.lists(st.floats(0, 12, width=32), min_size=2, max_size=5),
    st.sampled_from(["paper", "released"]),
)
def test_trigger_falls_with_the_threshold(u, thresholds, rule) -> None:
    ratios = [
        float(uncertainty.trigger(jnp.array(u), jnp.float32(threshold), rule=rule).mean())
        for threshold in sorted({0.0, *thresholds})
    ]
    assert ratios[0] == 1.0
    assert ratios == sorted(ratios, reverse=True)
