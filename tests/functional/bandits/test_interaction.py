"""The interface, the interaction, and the policies without networks."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.functional.bandits import policies
from jaxrag.functional.bandits.interaction import Bandit, Values, interact
from jaxrag.functional.bandits.policies import linear_ucb
from jaxrag.types import InputError
from tests.functional.bandits import references
from tests.functional.bandits.draws import normal
from tests.functional.bandits.problems import problem, random_arm

KEY = jax.random.key(0)
D, ARMS = 4, 3
CONTEXTS = normal(1, (12, D))
REWARDS = normal(2, (12, ARMS))


def counting() -> Bandit:
    """Plays the number of rounds learnt so far; its state is what every function has seen."""

    def select(state, x, key):
        return state["rounds"] % ARMS

    def update(state, x, arm, reward):
        seen = jnp.stack([x[0], arm.astype(jnp.float32), reward, state["fits"].astype(jnp.float32)])
        log = state["log"].at[state["rounds"]].set(seen)
        return {**state, "log": log, "rounds": state["rounds"] + 1}

    zero = jnp.zeros((), jnp.int32)
    return Bandit(
        init=lambda key: {"log": jnp.zeros((12, 4)), "rounds": zero, "fits": zero},
        values=lambda state, x: Values(*[jnp.zeros(ARMS)] * 3),
        select=select,
        update=update,
        fit=lambda state, key: {**state, "fits": state["fits"] + 1},
        greedy=lambda state, x: zero,
    )


@pytest.mark.parametrize("batch", [1, 3, 4, 12])
def test_a_batch_selects_with_its_first_state_and_fits_once(batch: int) -> None:
    bandit = counting()
    out = interact(bandit, bandit.init(KEY), CONTEXTS, REWARDS, KEY, batch=batch)
    arms = [(t // batch * batch) % ARMS for t in range(12)]
    assert out.arms.tolist() == arms
    won = [float(REWARDS[t, arm]) for t, arm in enumerate(arms)]
    assert out.rewards.tolist() == won
    log = [[float(CONTEXTS[t, 0]), arms[t], won[t], t // batch] for t in range(12)]
    assert out.state["log"].tolist() == log
    assert out.state["fits"] == 12 // batch


@pytest.mark.parametrize("batch", [1, 3])
def test_fits_between_stretches_of_rounds(batch: int) -> None:
    bandit = counting()
    out = interact(bandit, bandit.init(KEY), CONTEXTS, REWARDS, KEY, batch=batch, fit_every=6)
    assert out.arms.tolist() == [(t // batch * batch) % ARMS for t in range(12)]
    assert out.state["fits"] == 2
    assert out.state["log"][:, 3].tolist() == [0.0] * 6 + [1.0] * 6
    for every in (0, 5, 4, 24):
        if every % batch or 12 % every if every else True:
            with pytest.raises(InputError, match=f"a fit every {every} rounds"):
                interact(bandit, {}, CONTEXTS, REWARDS, KEY, batch=batch, fit_every=every)


@pytest.mark.parametrize("explore", [lambda b: policies.epsilon_greedy(b, 0.5), policies.thompson])
def test_replacing_exploration_disables_batched_rounds(explore) -> None:
    """Arms between fits come from the policy's own ``select``."""
    ahead = counting()._replace(rounds=lambda state, contexts, rewards, keys: 1 / 0)
    assert explore(ahead).rounds is None


def test_keys_differ_from_round_to_round() -> None:
    bandit = random_arm(ARMS)
    for batch in (1, 4):
        contexts, rewards = jnp.tile(CONTEXTS, (50, 1)), jnp.tile(REWARDS, (50, 1))
        play = jax.jit(partial(interact, bandit, (), batch=batch))
        out = play(contexts, rewards, KEY)
        share = np.bincount(np.asarray(out.arms), minlength=ARMS) / 600
        np.testing.assert_allclose(share, 1 / 3, atol=0.1)  # 5 standard deviations of 0.02
        other = play(contexts, rewards, jax.random.key(8))
        assert (out.arms != other.arms).any()


def test_incompatible_rounds_and_batches_are_refused() -> None:
    bandit = random_arm(ARMS)
    for batch in (0, 5, 24):
        with pytest.raises(InputError, match=f"12 rounds do not divide into batches of {batch}"):
            interact(bandit, (), CONTEXTS, REWARDS, KEY, batch=batch)
    with pytest.raises(InputError, match="12 contexts but 11 rows of rewards"):
        interact(bandit, (), CONTEXTS, REWARDS[:11], KEY)


def test_reference_policies_by_hand() -> None:
    rewards = jnp.array([[1.0, 3.0, 3.0], [0.0, -1.0, -2.0], [5.0, 6.0, 0.0]])
    best = policies.oracle(rewards)
    assert best.tolist() == [1, 0, 1]
    assert policies.best_fixed_arm(rewards) == 1  # means 2, 8/3, 1/3
    # Arm 0 falls short by 2, then 0, then 1.
    assert policies.regret(rewards, jnp.array([0, 0, 0])).tolist() == [2.0, 2.0, 3.0]
    assert policies.regret(rewards, best).tolist() == [0.0, 0.0, 0.0]


def with_values(mean, width, beta=2.0) -> Bandit:
    """A policy with fixed values."""
    values = Values(jnp.array(mean), jnp.array(width), jnp.array(mean) + beta * jnp.array(width))
    return counting()._replace(values=lambda state, x: values)


def test_epsilon_greedy_plays_random_arms_at_rate_epsilon() -> None:
    bandit = policies.epsilon_greedy(with_values([0.0, 1.0, 0.5], [9.0, 0.0, 9.0]), 0.3)
    keys = jax.random.split(KEY, 4000)
    arms = jax.vmap(bandit.select, (None, None, 0))((), CONTEXTS[0], keys)
    share = np.bincount(np.asarray(arms), minlength=ARMS) / 4000
    np.testing.assert_allclose(share, [0.1, 0.8, 0.1], atol=0.025)  # 4 standard deviations
    for epsilon in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="epsilon is"):
            policies.epsilon_greedy(bandit, epsilon)


def test_thompson_draws_have_the_mean_and_the_variance() -> None:
    """Of two arms, the second known to be worth c, the first wins with P(N(m, (2 s)^2) > c)."""
    keys = jax.random.split(KEY, 4000)
    for c, likely in ((1.0, 0.5), (1.0 + 2 * 0.7, 0.1587), (1.0 - 2 * 2 * 0.7, 0.9772)):
        bandit = policies.thompson(with_values([1.0, c], [0.7, 0.0]))
        arms = jax.vmap(bandit.select, (None, None, 0))((), CONTEXTS[0], keys)
        np.testing.assert_allclose(np.mean(np.asarray(arms) == 0), likely, atol=0.03)


def test_thompson_draws_arms_independently() -> None:
    bandit = policies.thompson(with_values([0.0] * 3, [1.0] * 3))
    keys = jax.random.split(KEY, 3000)
    arms = jax.vmap(bandit.select, (None, None, 0))((), CONTEXTS[0], keys)
    np.testing.assert_allclose(np.bincount(np.asarray(arms)) / 3000, 1 / 3, atol=0.04)


@pytest.mark.parametrize("alpha", [0.0, 1.7])
def test_linear_ucb_equals_float64(alpha: float) -> None:
    bandit = linear_ucb(D, ARMS, alpha=alpha, regularization=0.3)

    def step(state, xs):
        x, won = xs
        values = bandit.values(state, x)
        arm = bandit.select(state, x, KEY)
        return bandit.update(state, x, arm, won[arm]), (values, arm)

    state, (values, arms) = jax.lax.scan(step, bandit.init(KEY), (CONTEXTS, REWARDS))
    expected = references.linear_rounds(
        np.asarray(CONTEXTS), np.asarray(REWARDS), alpha=alpha, regularization=0.3
    )
    assert arms.tolist() == [each.arm for each in expected]
    for name in ("mean", "width", "ucb"):
        wanted = np.stack([getattr(each, name) for each in expected])
        np.testing.assert_allclose(getattr(values, name), wanted, rtol=1e-5, atol=1e-5)
    assert bandit.fit(state, KEY) is state
    assert bandit.greedy(state, CONTEXTS[0]) == jnp.argmax(bandit.values(state, CONTEXTS[0]).mean)


def test_linear_ucb_finds_a_linear_reward() -> None:
    made = problem("linear", KEY, rounds=400, d=4, arms=3, noise=0.1)
    bandit = linear_ucb(4, 3)
    out = jax.jit(partial(interact, bandit))(bandit.init(KEY), made.contexts, made.rewards, KEY)
    lost = policies.regret(made.expected, out.arms)
    by_chance = jnp.sum(jnp.max(made.expected, axis=1) - jnp.mean(made.expected, axis=1))
    assert lost[-1] < 0.1 * by_chance
    assert lost[-1] - lost[199] < 0.1 * lost[199]


@pytest.mark.parametrize("kind", ["linear", "quadratic", "matrix", "cosine"])
def test_rewards_of_test_problems(kind) -> None:
    made = problem(kind, KEY, rounds=3000, d=6, arms=3)
    x, expected = np.asarray(made.contexts), np.asarray(made.expected)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0, rtol=1e-5)
    noise = np.asarray(made.rewards) - expected
    np.testing.assert_allclose([noise.mean(), noise.std()], [0.0, 1.0], atol=0.05)
    # Undo the function: what is left must be linear (in x, or in its products for a quadratic).
    if kind == "linear":
        left, basis, size = expected, x, 10.0
    elif kind == "cosine":
        # cos(3 z) = 4 cos^3 z - 3 cos z has no inverse; by 1 - 9/2 z^2 + 27/8 z^4 for small z.
        near = np.abs(expected - 1) < 0.05
        pairs = (x[:, :, None] * x[:, None]).reshape(len(x), -1)
        for arm in range(3):
            rows, target = pairs[near[:, arm]], 1 - expected[near[:, arm], arm]
            fitted = rows @ np.linalg.lstsq(rows, target, rcond=None)[0]
            assert np.abs(fitted - target).max() < 5e-3
        assert expected.min() >= np.cos(3) - 1e-6
        return
    else:
        left, basis, size = expected, (x[:, :, None] * x[:, None]).reshape(len(x), -1), None
    weights, *_ = np.linalg.lstsq(basis.astype(float), left.astype(float), rcond=None)
    np.testing.assert_allclose(basis @ weights, left, atol=1e-4)
    if size:
        np.testing.assert_allclose(np.linalg.norm(weights, axis=0), size, rtol=1e-4)
    else:
        forms = weights.T.reshape(3, 6, 6)
        ranks = [int((np.linalg.eigvalsh(form) > 1e-3).sum()) for form in forms]
        assert ranks == ([1] * 3 if kind == "quadratic" else [6] * 3)
        if kind == "quadratic":
            np.testing.assert_allclose([np.linalg.eigvalsh(f)[-1] for f in forms], 10, rtol=1e-3)
