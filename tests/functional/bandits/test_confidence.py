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

from jaxrag.functional.bandits import interaction as bandits
from jaxrag.functional.bandits import neural_ucb
from jaxrag.functional.bandits.confidence import Full, add_gradients, diagonal, full, inverse_of
from jaxrag.functional.bandits.confidence_dual import dual
from jaxrag.functional.bandits.fit import newest, replay_fit
from jaxrag.functional.bandits.networks import mlp
from jaxrag.types import InputError
from tests.functional.bandits import references
from tests.functional.bandits.draws import normal

KEY = jax.random.key(0)
P = 4
ENTRIES = st.floats(-3, 3, width=32).map(lambda x: float(np.float32(round(x, 2))))
FEW = settings(max_examples=25, deadline=None)
add = jax.jit(add_gradients)


def start(regularization: float) -> Full:
    eye = np.eye(P, dtype=np.float32)[None]
    return Full(jnp.array(eye / regularization), jnp.array(eye * regularization), jnp.array(0))


@FEW
@given(hnp.arrays(np.float32, (12, P), elements=ENTRIES), st.sampled_from([0.1, 1.0, 5.0]))
def test_the_inverse_stays_accurate_and_z_positive_definite(rows, regularization) -> None:
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
def test_a_batch_of_eight_equals_single_updates(rows) -> None:
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


def test_a_drifted_inverse_is_recomputed() -> None:
    rows = normal(0, (3, P))
    belief = start(1.0)
    for row in rows:
        belief = add(belief, 0, row[None])
    off = belief._replace(inverse=belief.inverse.at[0, 1, 2].add(0.3))
    row = np.ones((1, P), np.float32)
    right, healed = add(belief, 0, row), add(off, 0, row)
    assert (right.renewed, healed.renewed) == (0, 1)
    np.testing.assert_allclose(healed.inverse, right.inverse, atol=1e-5)
    healed = add(belief._replace(inverse=belief.inverse.at[0, 1, 2].set(np.nan)), 0, row)
    assert healed.renewed == 1
    np.testing.assert_allclose(healed.inverse, right.inverse, atol=1e-5)


def test_the_inverse_by_cholesky_is_symmetric() -> None:
    rows = normal(0, (9, P))
    z = jnp.asarray(rows.T @ rows + np.eye(P, dtype=np.float32))
    np.testing.assert_allclose(inverse_of(z) @ z, np.eye(P), atol=1e-5)
    np.testing.assert_array_equal(inverse_of(z), inverse_of(z).T)


D, ARMS = 3, 3


def frozen(net, confidence, beta: float):
    """A bandit without training."""
    exploration = neural_ucb.outside(beta)
    return neural_ucb.neural_ucb(net, confidence=confidence, exploration=exploration, fit=None)


def test_the_dual_form_equals_the_full_form() -> None:
    """Over 60 rounds with training between them, so that gradients change on the way.

    In float64: float32 inverses drift after 60 updates, by how much depends on the processor.
    """
    contexts = normal(1, (60, D)).astype(np.float64)
    rewards = np.sin(contexts @ normal(2, (D, ARMS)))
    net = mlp(D, ARMS, hidden=(5,), shared=True)
    fit = replay_fit(net, optax.sgd(0.05), capacity=20, sampler=newest(20))
    found = []
    with jax.enable_x64(True):
        for made in (full(net), dual(net, pulls=60)):
            bandit = neural_ucb.neural_ucb(
                net, confidence=made, exploration=neural_ucb.outside(0.7), fit=fit
            )
            play = jax.jit(partial(bandits.interact, bandit, batch=20))
            out = play(bandit.init(KEY), contexts, rewards, KEY)
            found.append((out, jax.jit(bandit.values)(out.state, contexts[0])))
    (one, full_values), (other, dual_values) = found
    assert one.arms.tolist() == other.arms.tolist()
    assert len(set(one.arms.tolist())) == ARMS
    for ours, theirs in zip(dual_values, full_values, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert int(other.state.belief.pulls.sum()) == 60
    assert one.state.belief.renewed == 0


def test_a_full_dual_form_keeps_its_first_pulls() -> None:
    net = mlp(D, ARMS, hidden=(5,))
    params, contexts = net.init(KEY), normal(1, (4, D))

    def widths(pulls: int):
        """Width of arm 1 in the last context after each of four pulls of it, and of arm 0."""
        made = dual(net, pulls=pulls)

        def step(belief, x):
            belief = made.update(belief, params, x, jnp.asarray(1))
            return belief, made.evaluate(belief, params, contexts[3])[1][:2]

        return jax.lax.scan(step, made.init(params), contexts)

    (small, kept), (large, whole) = jax.jit(widths, static_argnums=0)(2), widths(4)
    np.testing.assert_allclose(kept[:2], whole[:2], rtol=1e-6)
    np.testing.assert_array_equal(kept[2:], kept[jnp.array([1, 1])])
    # The last pull was of this very context, so its width fell: the kept one is a bound above.
    assert whole[3, 1] < 0.9 * kept[3, 1]
    assert np.all(whole <= kept * (1 + 1e-5))
    assert small.pulls.tolist() == large.pulls.tolist() == [0, 4, 0]
    with pytest.raises(InputError, match="0 pulls"):
        dual(net, pulls=0)


@pytest.mark.slow
def test_the_dual_form_in_double_precision_equals_float64() -> None:
    """The bandit played by NumPy (tests/functional/bandits/references.py)."""
    with jax.enable_x64(True):
        net = mlp(D, ARMS, hidden=(5,))
        bandit = frozen(net, dual(net, pulls=12), 0.7)
        contexts = normal(1, (12, D)).astype(float)
        state = bandit.init(KEY)
        play = jax.jit(partial(bandits.interact, bandit))
        out = play(state, contexts, jnp.zeros((12, ARMS)), KEY)
        values = bandit.values(out.state, contexts[0])
        assert values.width.dtype == jnp.float64
        history, _ = references.rounds(
            state.params, np.asarray(jnp.concatenate([contexts, contexts[:1]])), arms=ARMS,
            shared=False, diagonal=False, regularization=1.0,
            bonus=lambda squared, t: 0.7 * np.sqrt(squared),
        )  # fmt: skip
    assert out.arms.tolist() == [each.arm for each in history[:12]]
    np.testing.assert_allclose(values.width, history[12].width, rtol=1e-10)
    np.testing.assert_allclose(values.ucb, history[12].ucb, rtol=1e-10)


def test_a_full_dual_form_still_explores_all_arms() -> None:
    # One kept pull per arm: in the last 20 of 40 rounds the arms played have no room left.
    net = mlp(D, ARMS, hidden=(5,))
    bandit = frozen(net, dual(net, pulls=1), 1.0)
    contexts = normal(1, (40, D))
    play = jax.jit(partial(bandits.interact, bandit))
    out = play(bandit.init(KEY), contexts, jnp.zeros((40, ARMS)), KEY)
    assert len(set(out.arms[20:].tolist())) > 1
    assert out.state.belief.pulls.sum() == 40
    assert np.isfinite(jax.jit(bandit.values)(out.state, contexts[0]).ucb).all()


@pytest.mark.parametrize("form", [full, diagonal])
def test_widths_of_a_thousand_repeats_shrink_as_predicted(form) -> None:
    """n plays of one gradient: |g|^2 / (1 + n |g|^2) of all of Z, and by weight of its diagonal."""
    net = mlp(D, ARMS, hidden=(5,))
    params, x, made = net.init(KEY), jnp.array([0.3, -1.0, 0.5]), form(net)
    layers = references.arm_weights(params, 1, shared=False)
    g2 = np.concatenate([piece.ravel() for piece in references.gradient(layers, np.asarray(x))])
    g2 = g2**2 if form is diagonal else np.sum(g2**2)

    def play(belief):
        step = lambda belief, _: (made.update(belief, params, x, jnp.asarray(1)), None)  # noqa: E731
        return jax.lax.scan(step, belief, None, length=1000)[0]

    squared = made.evaluate(jax.jit(play)(made.init(params)), params, x)[1]
    # A thousand roundings of 6e-8, in Z^-1 relative to its largest entries, 1 / lambda.
    bound = 1000 * 6e-8 * np.sum(g2)
    np.testing.assert_allclose(squared[1], np.sum(g2 / (1 + 1000 * g2)), atol=bound, rtol=1e-3)
    assert squared[0] > 10 * squared[1]
