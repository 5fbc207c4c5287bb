"""The replay buffer, what steps learn from, and when a fit ends."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrag.functional.bandits.fit import append, empty, newest, replay_fit, shuffled
from jaxrag.functional.bandits.networks import mlp
from jaxrag.types import InputError
from tests.functional.bandits import references

KEY = jax.random.key(0)
D, ARMS = 2, 3
APPEND = jax.jit(append)


def filled(plays: int, capacity: int):
    """Play i has context (i, i), arm i % 3 and reward i."""
    buffer = empty(capacity, D)
    for i in range(plays):
        context, reward = np.full((1, D), i, np.float32), np.array([i], np.float32)
        buffer = APPEND(buffer, context, np.array([i % ARMS], np.int32), reward)
    return buffer


def test_a_full_buffer_keeps_the_newest_plays() -> None:
    assert filled(3, 4).rewards.tolist() == [0.0, 1.0, 2.0, 0.0]
    assert filled(3, 4).held == 3
    full = filled(6, 4)
    assert full.rewards.tolist() == [4.0, 5.0, 2.0, 3.0]
    assert full.arms.tolist() == [1, 2, 2, 0]
    assert full.contexts[:, 1].tolist() == [4.0, 5.0, 2.0, 3.0]
    assert (full.held, full.count) == (4, 6)
    two = append(filled(3, 4), jnp.ones((2, D)), jnp.array([0, 1]), jnp.array([8.0, 9.0]))
    assert two.rewards.tolist() == [9.0, 1.0, 2.0, 8.0]
    some = append(
        filled(3, 4), jnp.ones((3, D)), jnp.array([0, 1, 2]), jnp.array([7.0, 8.0, 9.0]),
        where=jnp.array([True, False, True]),
    )  # fmt: skip
    assert (some.rewards.tolist(), some.count) == ([9.0, 1.0, 2.0, 7.0], 5)
    with pytest.raises(InputError, match="a batch of 5 rounds"):
        append(filled(3, 4), jnp.ones((5, D)), jnp.zeros(5), jnp.zeros(5))


def drawn(sampler, buffer, step: int) -> list[float]:
    """Rewards of the plays that a step learns from."""
    rows, where = sampler(buffer, KEY).rows(jnp.asarray(step))
    return buffer.rewards[rows][where].tolist()


def test_minibatches_of_each_sampler() -> None:
    assert drawn(newest(3), filled(6, 4), 0) == [5.0, 4.0, 3.0]
    assert drawn(newest(3), filled(2, 4), 7) == [1.0, 0.0]
    assert drawn(newest(3), filled(0, 4), 0) == []
    for plays, size in ((3, 2), (6, 2), (6, 3), (1, 4)):
        buffer = filled(plays, 4)
        held = min(plays, 4)
        steps = shuffled(size)(buffer, KEY).steps
        assert steps == -(-held // size)
        one_pass = [drawn(shuffled(size), buffer, step) for step in range(steps)]
        assert sorted(play for plays in one_pass for play in plays) == sorted(
            buffer.rewards[:held].tolist()
        )
        again = [drawn(shuffled(size), buffer, int(steps) + step) for step in range(steps)]
        assert again == one_pass  # one order a fit
    assert drawn(shuffled(2), filled(0, 4), 0) == []


def test_the_order_differs_by_key() -> None:
    buffer = filled(8, 8)
    orders = {
        tuple(int(shuffled(1)(buffer, key).rows(jnp.asarray(step))[0][0]) for step in range(8))
        for key in jax.random.split(KEY, 4)
    }
    assert len(orders) == 4


def made(optimizer=None, *, sampler=None, **options):
    net = mlp(D, ARMS, hidden=(4,))
    fit = replay_fit(
        net, optimizer or optax.sgd(0.1), capacity=4, sampler=sampler or newest(4), **options
    )
    return net, fit


def test_one_step_equals_float64() -> None:
    """theta - eta 2/n sum (f - r) grad f, arm by arm."""
    net, fit = made()
    params = net.init(KEY)
    buffer = filled(3, 4)._replace(rewards=jnp.array([0.5, -1.0, 2.0, 99.0]))
    _, after, steps = jax.jit(fit.run)(fit.init(params), params, buffer, KEY)
    assert steps == 1
    for arm in range(ARMS):
        layers = references.arm_weights(params, arm, shared=False)
        x = np.full(D, float(arm))
        error = references.value(layers, x) - float(buffer.rewards[arm])
        slopes = references.gradient(layers, x)
        for at, slope in enumerate(slopes):
            was = layers[at][0]
            wanted = was - 0.1 * 2 / 3 * error * slope
            np.testing.assert_allclose(after[at].kernel[arm], wanted, rtol=1e-5, atol=1e-5)


def test_unplayed_arms_keep_their_weights() -> None:
    net, fit = made()
    params, buffer = net.init(KEY), filled(2, 4)  # arms 0 and 1
    _, after, _ = jax.jit(fit.run)(fit.init(params), params, buffer, KEY)
    moved = [bool((after[0].kernel[arm] != params[0].kernel[arm]).any()) for arm in range(ARMS)]
    assert moved == [False, True, False]  # arm 0 saw a context of zeros
    assert (after[1].kernel[2] == params[1].kernel[2]).all()


def test_a_single_play_equals_a_masked_minibatch() -> None:
    net, single = made(sampler=newest(1))
    _, several = made(sampler=newest(3))
    buffer, params = filled(1, 4)._replace(contexts=jnp.ones((4, D))), net.init(KEY)
    _, one, _ = jax.jit(single.run)(single.init(params), params, buffer, KEY)
    _, other, _ = jax.jit(several.run)(several.init(params), params, buffer, KEY)
    for a, b, was in zip(*map(jax.tree.leaves, (one, other, params)), strict=True):
        np.testing.assert_allclose(a - was, b - was, atol=1e-6)


def test_a_fit_stops_after_a_pass_below_the_target_error() -> None:
    for sampler, one_pass in ((newest(4), 1), (shuffled(2), 2)):
        net, fit = made(sampler=sampler, steps=50, tolerance=1e9)
        params = net.init(KEY)
        assert jax.jit(fit.run)(fit.init(params), params, filled(4, 4), KEY)[2] == one_pass
        net, fit = made(optax.sgd(1e-3), sampler=sampler, steps=5, tolerance=1e-9)
        assert jax.jit(fit.run)(fit.init(params), params, filled(4, 4), KEY)[2] == 5


def test_the_error_of_a_pass_is_the_mean_over_its_plays() -> None:
    """Weights that stay (rate 0): the tolerance just above and below the mean squared error."""
    net, _ = made()
    params, buffer = net.init(KEY), filled(3, 4)
    of = [references.arm_weights(params, i, shared=False) for i in range(3)]
    error = np.mean([(references.value(of[i], np.full(D, float(i))) - i) ** 2 for i in range(3)])
    for factor, steps in ((1.001, 2), (0.999, 6)):
        _, fit = made(optax.sgd(0.0), sampler=shuffled(2), steps=6, tolerance=error * factor)
        assert jax.jit(fit.run)(fit.init(params), params, buffer, KEY)[2] == steps


def test_a_fit_starts_from_the_previous_weights() -> None:
    """Two fits of 3 steps are one of 6, the optimiser's moments included."""
    buffer = filled(4, 4)
    net, short = made(optax.adam(0.1), steps=3)
    _, long = made(optax.adam(0.1), steps=6)
    params = net.init(KEY)
    run = jax.jit(short.run)
    state, once, _ = run(short.init(params), params, buffer, KEY)
    _, twice, _ = run(state, once, buffer, KEY)
    _, whole, _ = jax.jit(long.run)(long.init(params), params, buffer, KEY)
    for a, b in zip(*map(jax.tree.leaves, (twice, whole)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_training_reduces_the_error_on_plays() -> None:
    net, fit = made(optax.adam(0.05), sampler=shuffled(2), steps=400, tolerance=1e-4)
    params, buffer = net.init(KEY), filled(4, 4)
    _, after, steps = jax.jit(fit.run)(fit.init(params), params, buffer, KEY)
    assert 1 < steps < 400
    values = [float(net.rewards(after, buffer.contexts[i])[i % ARMS]) for i in range(1, 4)]
    np.testing.assert_allclose(values, [1, 2, 3], atol=0.1)


def test_invalid_sizes_are_refused() -> None:
    for options in ({"capacity": 0}, {"capacity": 2, "steps": 0}):
        with pytest.raises(InputError, match="both must be at least 1"):
            replay_fit(mlp(D, ARMS), optax.sgd(0.1), sampler=newest(4), **options)
