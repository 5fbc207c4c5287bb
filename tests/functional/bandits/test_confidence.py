"""Confidence matrices: inverses stay inverses, forms agree, drift is caught."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxrag.functional import bandits, neural_ucb
from jaxrag.functional.bandit_fit import newest, replay_fit
from jaxrag.functional.bandit_networks import mlp
from jaxrag.functional.confidence import diagonal
from jaxrag.functional.confidence_dual import dual
from jaxrag.functional.confidence_full import Full, added, full, inverse_of
from tests.functional import bandit_references as references

KEY = jax.random.key(0)
P = 4
ENTRIES = st.floats(-3, 3, width=32).map(lambda x: float(np.float32(round(x, 2))))
FEW = settings(max_examples=25, deadline=None)
add = jax.jit(partial(added, drift=1e-2))


def start(regularization: float) -> Full:
    eye = np.eye(P, dtype=np.float32)[None]
    return Full(jnp.array(eye / regularization), jnp.array(eye * regularization), jnp.array(0))


@FEW
@given(hnp.arrays(np.float32, (12, P), elements=ENTRIES), st.sampled_from([0.1, 1.0, 5.0]))
def test_the_inverse_stays_one_and_z_positive_definite(rows, regularization) -> None:
    belief = start(regularization)
    exact = np.eye(P) * regularization
    for row in rows:
        belief = add(belief, 0, row[None])
        exact += np.outer(row, row).astype(float)
    np.testing.assert_allclose(belief.z[0], exact, rtol=1e-5, atol=1e-5)
    assert np.linalg.eigvalsh(np.asarray(belief.z[0], float))[0] > 0.9 * regularization
    assert np.linalg.eigvalsh(np.asarray(belief.inverse[0], float))[0] > 0
    # Float32: 1e-7 by the condition number, here up to 1,000, over 12 updates.
    wrong = np.asarray(belief.inverse[0]) - np.linalg.inv(exact)
    assert np.abs(wrong).max() < 2e-3 / regularization


@FEW
@given(hnp.arrays(np.float32, (8, P), elements=ENTRIES))
def test_eight_at_once_equal_one_by_one(rows) -> None:
    together, single = add(start(1.0), 0, rows), start(1.0)
    for row in rows:
        single = add(single, 0, row[None])
    np.testing.assert_allclose(together.inverse, single.inverse, atol=1e-4)
    np.testing.assert_allclose(together.z, single.z, rtol=1e-5, atol=1e-5)


def test_sherman_morrison_worked_by_hand() -> None:
    # Z = I + g g' with g = (1, 2, 0, 0): inverse I - g g' / (1 + 5).
    belief = add(start(1.0), 0, np.array([[1.0, 2, 0, 0]], np.float32))
    np.testing.assert_allclose(
        belief.inverse[0, :2, :2], [[5 / 6, -2 / 6], [-2 / 6, 2 / 6]], rtol=1e-6
    )
    assert belief.renewed == 0


def test_a_drifted_inverse_is_made_anew() -> None:
    rows = np.asarray(jax.random.normal(KEY, (3, P)))
    belief = start(1.0)
    for row in rows:
        belief = add(belief, 0, row[None])
    off = belief._replace(inverse=belief.inverse.at[0, 1, 2].add(0.3))
    row = np.ones((1, P), np.float32)
    right, healed = add(belief, 0, row), add(off, 0, row)
    assert (right.renewed, healed.renewed) == (0, 1)
    np.testing.assert_allclose(healed.inverse, right.inverse, atol=1e-5)
    ill = added(off._replace(z=None), 0, jnp.array(row), drift=None)
    assert np.abs(ill.inverse - right.inverse).max() > 0.05  # nobody looked


def test_the_inverse_by_cholesky_is_symmetric() -> None:
    rows = jax.random.normal(KEY, (9, P))
    z = rows.T @ rows + jnp.eye(P)
    np.testing.assert_allclose(inverse_of(z) @ z, np.eye(P), atol=1e-5)
    np.testing.assert_array_equal(inverse_of(z), inverse_of(z).T)


D, ARMS = 3, 3


def run(confidence, *, rounds: int, batch: int, shared: bool = False):
    """Rounds with training between them, so that gradients change on the way."""
    net = mlp(D, ARMS, hidden=(5,), shared=shared)
    fit = replay_fit(net, optax.sgd(0.05), capacity=batch, sampler=newest(batch))
    bandit = neural_ucb.neural_ucb(
        net, confidence=confidence(net), exploration=neural_ucb.outside(0.7), fit=fit
    )
    contexts = jax.random.normal(jax.random.key(1), (rounds, D))
    rewards = jnp.sin(contexts @ jax.random.normal(jax.random.key(2), (D, ARMS)))
    play = jax.jit(partial(bandits.interact, bandit, batch=batch))
    out = play(bandit.init(KEY), contexts, rewards, KEY)
    return out, jax.jit(bandit.values)(out.state, contexts[0])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("batch", [1, 20])
def test_dual_plays_as_full_over_sixty_rounds(batch: int, shared: bool) -> None:
    one, full_values = run(full, rounds=60, batch=batch, shared=shared)
    other, dual_values = run(partial(dual, pulls=60), rounds=60, batch=batch, shared=shared)
    assert one.arms.tolist() == other.arms.tolist()
    assert len(set(one.arms.tolist())) == ARMS
    for ours, theirs in zip(dual_values, full_values, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert int(other.state.belief.pulls.sum()) == 60
    assert one.state.belief.renewed == 0


def test_dual_without_room_is_nan_and_not_wrong() -> None:
    net = mlp(D, ARMS, hidden=(5,))
    params, made = net.init(KEY), dual(net, pulls=2)
    belief, x = made.init(params), jnp.ones(D)
    for pulled in range(3):
        _, squared = made.look(belief, params, x)
        assert np.isfinite(squared).all(), pulled
        belief = made.update(belief, params, x * (pulled + 1), jnp.asarray(1))
    _, squared = made.look(belief, params, x)
    assert np.isnan(squared).tolist() == [False, True, False]


@pytest.mark.parametrize("form", [full, diagonal])
def test_widths_of_a_thousand_repeats_shrink_as_they_should(form) -> None:
    """n plays of one gradient: |g|^2 / (1 + n |g|^2) of all of Z, and by weight of its diagonal."""
    net = mlp(D, ARMS, hidden=(5,))
    params, x, made = net.init(KEY), jnp.array([0.3, -1.0, 0.5]), form(net)
    layers = references.arm_weights(params, 1, shared=False)
    g2 = np.concatenate([piece.ravel() for piece in references.gradient(layers, np.asarray(x))])
    g2 = g2**2 if form is diagonal else np.sum(g2**2)

    def play(belief):
        step = lambda belief, _: (made.update(belief, params, x, jnp.asarray(1)), None)  # noqa: E731
        return jax.lax.scan(step, belief, None, length=1000)[0]

    squared = made.look(jax.jit(play)(made.init(params)), params, x)[1]
    # A thousand roundings of 6e-8, in Z^-1 relative to its largest entries, 1 / lambda.
    bound = 1000 * 6e-8 * np.sum(g2)
    np.testing.assert_allclose(squared[1], np.sum(g2 / (1 + 1000 * g2)), atol=bound, rtol=1e-3)
    assert squared[0] > 10 * squared[1]
