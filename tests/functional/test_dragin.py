"""DRAGIN's scores and queries: numbers worked by hand, a loop in float64, masks, jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.functional import dragin

ALL = jnp.ones(4, bool)
# row j: what token j pays to tokens 0, 1, 2, 3
ATTENTION = jnp.array([
    [1.0, 0.0, 0.0, 0.0],
    [0.3, 0.7, 0.0, 0.0],
    [0.5, 0.1, 0.4, 0.0],
    [0.2, 0.6, 0.05, 0.15],
])  # fmt: skip


def test_attention_is_received_from_later_tokens_only() -> None:
    # 0: max(.3, .5, .2); 1: max(.1, .6), its own .7 does not count; 2: .05; 3: nothing follows
    found = dragin.received(ATTENTION, where=ALL)
    np.testing.assert_allclose(found, [0.5, 0.6, 0.05, 0.0], rtol=1e-6)


def test_padding_gives_and_receives_no_attention() -> None:
    where = jnp.array([True, True, True, False])
    # without the last row: .5, .1, 0
    found = dragin.received(ATTENTION, where=where)
    np.testing.assert_allclose(found, [0.5, 0.1, 0.0, 0.0], rtol=1e-6)
    empty = dragin.received(ATTENTION, where=jnp.zeros(4, bool))
    np.testing.assert_array_equal(empty, np.zeros(4))


def test_relative_attention_is_divided_by_the_sentence_mean() -> None:
    # sentence 0 has mean (.5 + .1)/2 = .3; sentence 1 has mean .2 over its one real token
    values, numbers = jnp.array([0.5, 0.1, 0.2, 9.0]), jnp.array([0, 0, 1, 1])
    where = jnp.array([True, True, True, False])
    found = dragin.relative(values, numbers, where=where)
    np.testing.assert_allclose(found, [5 / 3, 1 / 3, 1.0, 0.0], rtol=1e-6)
    nothing = dragin.relative(jnp.zeros(4), numbers, where=where)
    np.testing.assert_array_equal(nothing, np.zeros(4))


def test_rind_is_the_product_and_0_for_stopwords() -> None:
    entropies = jnp.array([2.0, 0.5, 4.0, 1.0])
    content = jnp.array([True, True, False, True])
    found = dragin.rind(entropies, jnp.array([0.5, 0.6, 0.05, 0.0]), content)
    np.testing.assert_allclose(found, [1.0, 0.3, 0.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize("theta, first", [(0.5, 0), (1.0, 2), (1.5, 2), (3.0, -1), (0.0, 0)])
def test_the_first_above_the_threshold_triggers(theta: float, first: int) -> None:
    scores = jnp.array([1.0, 0.3, 2.0, 9.0])
    where = jnp.array([True, True, True, False])
    assert int(dragin.first_above(scores, theta, where=where)) == first


def test_word_weights_sum_over_tokens() -> None:
    # word 0: tokens 0 and 3, word 2: token 1; token 2 is of no word
    attention, words = jnp.array([0.1, 0.2, 0.4, 0.3]), jnp.array([0, 2, -1, 0])
    found = dragin.word_weights(attention, words, count=3)
    np.testing.assert_allclose(found, [0.4, 0.0, 0.2], rtol=1e-6)


def test_the_words_of_largest_weight_ties_to_the_first() -> None:
    weights, where = jnp.array([0.2, 0.5, 0.2, 0.9]), jnp.array([True, True, True, False])
    for n, kept in [(0, []), (1, [1]), (2, [0, 1]), (3, [0, 1, 2]), (9, [0, 1, 2])]:
        found = dragin.heaviest(weights, n, where=where)
        assert np.flatnonzero(found).tolist() == kept
    # padding comes after every real weight, NaN after every other real weight
    odd = jnp.array([9.0, jnp.nan, -jnp.inf])
    for n, kept in [(1, [2]), (2, [1, 2])]:
        found = dragin.heaviest(odd, n, where=jnp.array([False, True, True]))
        assert np.flatnonzero(found).tolist() == kept


def in_loops(
    entropies: np.ndarray, attention: np.ndarray, content: np.ndarray, sentences: np.ndarray
) -> np.ndarray:
    """Scores by the sentence's mean, token by token in float64."""
    t = len(entropies)
    got = [max((attention[j, i] for j in range(i + 1, t)), default=0.0) for i in range(t)]
    scores = []
    for i in range(t):
        own = [got[j] for j in range(t) if sentences[j] == sentences[i]]
        share = got[i] * len(own) / sum(own) if sum(own) else 0.0
        scores.append(entropies[i] * share if content[i] else 0.0)
    return np.array(scores)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 13), st.integers(0, 2**31))
def test_padded_and_jitted_scores_equal_loops(t: int, seed: int) -> None:
    rng, width = np.random.default_rng(seed), 16
    attention = np.zeros((width, width))
    attention[:t, :t] = np.tril(rng.dirichlet(np.ones(t), t))
    entropies, content = rng.gamma(1.0, size=width), rng.random(width) < 0.7
    sentences = np.sort(rng.integers(0, 3, width))
    wanted = in_loops(entropies[:t], attention[:t, :t], content[:t], sentences[:t])

    def scores(*arrays: jax.Array) -> jax.Array:
        e, a, c, s, where = arrays
        shared = dragin.relative(dragin.received(a, where=where), s, where=where)
        return dragin.rind(e, shared, c)

    arrays = (
        jnp.float32(entropies), jnp.float32(attention), jnp.array(content), jnp.array(sentences),
        jnp.arange(width) < t,
    )  # fmt: skip
    plain, jitted = scores(*arrays), jax.jit(scores)(*arrays)
    np.testing.assert_allclose(plain[:t], wanted, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(jitted, plain, rtol=1e-6)
    np.testing.assert_array_equal(plain[t:], np.zeros(width - t))
