"""PPO's equations: worked by hand, against float64 NumPy, and what padding must not change."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.functional import ppo

TRUE = jnp.ones(3, bool)


def test_rewards_of_tokens_by_hand() -> None:
    # beta 0.1: -0.1 (-1 + 1.5) = -0.05, -0.1 (-2 + 1) = 0.1, -0.1 * 0 = 0; the score is 2
    logprobs, reference = jnp.array([-1.0, -2.0, -3.0]), jnp.array([-1.5, -1.0, -3.0])
    of = [jnp.float32(2), logprobs, reference]
    found = ppo.token_rewards(*of, coefficient=0.1, where=TRUE)
    np.testing.assert_allclose(found, [-0.05, 0.1, 2.0], atol=1e-7)
    # of a text of two tokens the second one is the last
    found = ppo.token_rewards(*of, coefficient=0.1, where=jnp.array([True, True, False]))
    np.testing.assert_allclose(found, [-0.05, 2.1, 0.0], atol=1e-7)
    nothing = ppo.token_rewards(*of, coefficient=0.1, where=~TRUE)
    assert nothing.tolist() == [0, 0, 0]


def test_advantages_by_hand() -> None:
    # gamma 0.9, lambda 0.5: the deltas are 1 - 0.4 = 0.6, 0.9 * 0.4 - 0.2 = 0.16 and
    # 0.9 * 0.2 - 0.5 = -0.32; A_2 = 0.6, A_1 = 0.16 + 0.45 * 0.6 = 0.43,
    # A_0 = -0.32 + 0.45 * 0.43 = -0.1265
    rewards, values = jnp.array([0.0, 0.0, 1.0]), jnp.array([0.5, 0.2, 0.4])
    found = ppo.generalized_advantages(rewards, values, discount=0.9, decay=0.5, where=TRUE)
    np.testing.assert_allclose(found.advantages, [-0.1265, 0.43, 0.6], atol=1e-6)
    np.testing.assert_allclose(found.returns, [0.3735, 0.63, 1.0], atol=1e-6)
    # lambda 0: the deltas; lambda 1 and gamma 1: the return less the value
    one_step = ppo.generalized_advantages(rewards, values, discount=0.9, decay=0.0, where=TRUE)
    np.testing.assert_allclose(one_step.advantages, [-0.32, 0.16, 0.6], atol=1e-6)
    whole = ppo.generalized_advantages(rewards, values, discount=1.0, decay=1.0, where=TRUE)
    np.testing.assert_allclose(whole.advantages, [0.5, 0.8, 0.6], atol=1e-6)


def test_no_gradient_through_advantages() -> None:
    def total(values: Any) -> Any:
        return sum(x.sum() for x in ppo.generalized_advantages(jnp.ones(3), values, where=TRUE))

    assert jax.grad(total)(jnp.arange(3.0)).tolist() == [0, 0, 0]


def test_whitening_by_hand() -> None:
    # of 1 and 3 the mean is 2 and the variance 1
    values, where = jnp.array([1.0, 3.0, 100.0]), jnp.array([True, True, False])
    np.testing.assert_allclose(ppo.whiten(values, where=where), [-1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(ppo.whiten(values, where=where, shift=False), [1, 3, 0], atol=1e-6)
    assert ppo.whiten(jnp.full(3, 7.0), where=TRUE).tolist() == [0, 0, 0]
    # 1e6 + 0.1 is 1000000.125 in float32, and the rounded mean of three of them is not
    assert ppo.whiten(jnp.full(3, 1e6 + 0.1), where=TRUE).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("ratio", "advantage", "worth", "slope"),
    [
        # beyond the clip in the direction of the advantage: clipped, without a gradient
        (1.3, 1.0, 1.2, 0.0),
        (0.7, -1.0, -0.8, 0.0),
        # beyond it in the other direction: as it is, and d(rho A) / d log pi = rho A
        (1.3, -1.0, -1.3, -1.3),
        (0.7, 1.0, 0.7, 0.7),
        # within it
        (1.1, 2.0, 2.2, 2.2),
        (0.9, -2.0, -1.8, -1.8),
        (1.0, 1.0, 1.0, 1.0),
    ],
)
def test_the_clipped_objective_by_hand(
    ratio: float, advantage: float, worth: float, slope: float
) -> None:
    def loss(logprob: Any) -> Any:
        where = jnp.ones(1, bool)
        advantages = jnp.full(1, advantage)
        return ppo.policy_loss(logprob, jnp.full(1, -2.0), advantages, clip=0.2, where=where)

    value, gradient = jax.value_and_grad(loss)(jnp.full(1, -2.0 + math.log(ratio)))
    np.testing.assert_allclose(value, -worth, atol=1e-6)
    np.testing.assert_allclose(gradient, [-slope], atol=1e-6)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("edge", [0.5, 1.5])
def test_at_the_edges_of_the_clip_both_sides_are_equal(edge: float, advantage: float) -> None:
    # 0.5 and 1.5 are exact in binary: the clipped ratio is the ratio
    where = jnp.ones(1, bool)
    logprobs, old = jnp.log(jnp.full(1, edge)), jnp.zeros(1)
    found = ppo.policy_loss(logprobs, old, jnp.full(1, advantage), clip=0.5, where=where)
    assert float(found) == pytest.approx(-edge * advantage, abs=1e-6)


def test_without_advantage_there_is_no_gradient() -> None:
    def loss(logprobs: Any) -> Any:
        return ppo.policy_loss(logprobs, jnp.zeros(3), jnp.zeros(3), clip=0.2, where=TRUE)

    assert jax.grad(loss)(jnp.array([0.1, -3.0, 0.0])).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("advantage", "wanted", "slope"),
    [
        # exp(90) is beyond float32, but the clip of 0.2 holds: -1.2, without a gradient
        (1.0, -1.2, 0.0),
        (0.0, 0.0, 0.0),
        # min(-inf, -1.2): the loss is inf, and so is its gradient -rho A
        (-1.0, math.inf, math.inf),
    ],
)
@pytest.mark.parametrize("apart", [90.0, math.inf])
def test_an_overflowing_ratio_has_finite_loss_and_gradient(
    advantage: float, wanted: float, slope: float, apart: Any
) -> None:
    def loss(logprobs: Any) -> Any:
        old, advantages = jnp.full(1, -apart), jnp.full(1, advantage)
        return ppo.policy_loss(logprobs, old, advantages, clip=0.2, where=jnp.ones(1, bool))

    value, gradient = jax.jit(jax.value_and_grad(loss))(jnp.zeros(1))
    assert float(value) == pytest.approx(wanted)
    assert gradient.tolist() == [slope]


def test_a_nan_ratio_gives_a_nan_loss() -> None:
    for advantage in (1.0, 0.0, -1.0):
        of = jnp.full(1, jnp.nan), jnp.zeros(1), jnp.full(1, advantage)
        assert math.isnan(float(ppo.policy_loss(*of, clip=0.2, where=jnp.ones(1, bool))))


def test_the_value_loss_by_hand() -> None:
    def loss(value: Any, clip: float = 0.2) -> Any:
        of = jnp.full(1, value), jnp.zeros(1), jnp.ones(1)
        return ppo.value_loss(*of, clip=clip, where=jnp.ones(1, bool))

    # value 0.5 of 0, wanted 1: (1 - 0.5)^2 = 0.25, kept near it is 0.2 and costs 0.64, by a half
    assert float(loss(0.5)) == pytest.approx(0.32)
    assert float(jax.grad(loss)(0.5)) == 0.0  # it has moved far enough
    # value -0.5: 2.25 against (1 + 0.2)^2 = 1.44
    assert float(loss(-0.5)) == pytest.approx(1.125)
    assert float(jax.grad(loss)(-0.5)) == pytest.approx(-1.5)
    assert float(loss(0.5, math.inf)) == pytest.approx(0.125)


def test_entropy_by_hand() -> None:
    # p = 1/4 and 3/4: log(4) / 4 + 3 log(4/3) / 4 = 0.562335
    found = ppo.entropy(jnp.array([[5.0, 5.0, 5.0, 5.0], [0.0, math.log(3), -jnp.inf, -1e9]])[:1])
    np.testing.assert_allclose(found, [math.log(4)], atol=1e-6)
    np.testing.assert_allclose(ppo.entropy(jnp.array([0.0, math.log(3)])), 0.562335, atol=1e-6)


def test_entropy_of_impossible_tokens_by_hand() -> None:
    # p = 1 and 0: entropy 0. p = 1/4, 3/4 and 0: 0.562335 as without the third
    assert float(ppo.entropy(jnp.array([0.0, -jnp.inf]))) == 0.0
    logits = jnp.array([0.0, math.log(3), -jnp.inf])
    np.testing.assert_allclose(ppo.entropy(logits), 0.562335, atol=1e-6)
    # dH/dz_i = -p_i (log p_i + H): -(-1.386294 + 0.562335) / 4 = 0.205990, and minus that
    gradient = jax.grad(ppo.entropy)(logits)
    np.testing.assert_allclose(gradient, [0.205990, -0.205990, 0.0], atol=1e-6)


def test_divergences_by_hand() -> None:
    # ratios 2, 1 and (not there) 9: (2 - 1 - log 2 + 0) / 2 = 0.153426
    logprobs, where = jnp.log(jnp.array([2.0, 1.0, 9.0])), jnp.array([True, True, False])
    old = jnp.zeros(3)
    assert float(ppo.approximate_kl(logprobs, old, where=where)) == pytest.approx(
        0.153426, abs=1e-6
    )
    assert float(ppo.approximate_kl(logprobs, logprobs, where=where)) == 0.0
    # e^x - 1 - x = x^2 / 2 + x^3 / 6 + ...: of 1e-4 it is 5.00016667e-9
    tiny = ppo.approximate_kl(jnp.full(3, 1e-4), old, where=TRUE)
    assert float(tiny) == pytest.approx(5.00016667e-9, rel=1e-6)
    for x in (-0.06, -0.04, 0.04, 0.06):  # on both sides of where the series ends
        exact = math.expm1(x) - x
        found = ppo.approximate_kl(jnp.full(3, x), old, where=TRUE)
        assert float(found) == pytest.approx(exact, rel=1e-5)
    # one of the two lies beyond 1.5; at exactly 0.5 away it is not beyond
    assert float(ppo.clip_fraction(logprobs, old, clip=0.5, where=where)) == 0.5
    edge = jnp.log(jnp.array([1.5, 0.5, 1.0]))
    assert float(ppo.clip_fraction(edge, old, clip=0.500001, where=TRUE)) == 0.0


def test_explained_variance_by_hand() -> None:
    returns, where = jnp.array([0.0, 2.0, 50.0]), jnp.array([True, True, False])

    def of(*values: float) -> float:
        return float(ppo.explained_variance(jnp.array([*values, -9.0]), returns, where=where))

    # Var(returns) = 1; all of it, none, and errors of -2 and 2 with variance 4: 1 - 4 = -3
    assert [of(0, 2), of(1, 1), of(2, 0), of(7, 9)] == [1.0, 0.0, -3.0, 1.0]
    assert math.isnan(float(ppo.explained_variance(returns, jnp.ones(3), where=where)))
    # the mean of seven times 0.1 is not 0.1 in float32, but their variance is 0
    alike = ppo.explained_variance(jnp.arange(7.0), jnp.full(7, 0.1), where=jnp.ones(7, bool))
    assert math.isnan(float(alike))


@pytest.mark.parametrize(
    ("kl", "rate", "wanted"),
    [
        (0.5, 0.1, 0.1 * 1.02),  # 1.5 too far, of which 0.2 count
        (0.18, 0.1, 0.1 * 0.99),  # a tenth too near
        (0.2, 0.1, 0.1),
        (-3.0, 0.1, 0.1 * 0.98),
        (9.0, 0.0, 0.1),  # fixed
        (0.21, 1.0, 0.1 * 1.05),
    ],
)
def test_control_of_beta_by_hand(kl: float, rate: float, wanted: float) -> None:
    found = ppo.adapted_coefficient(jnp.float32(0.1), jnp.float32(kl), target=0.2, rate=rate)
    assert float(found) == pytest.approx(wanted, rel=1e-6)


def test_beta_settles_where_the_divergence_is_the_target() -> None:
    # a policy whose divergence is 1 / beta: beta = 1 / target is the only rest
    beta = jnp.float32(0.5)
    for _ in range(2000):
        beta = ppo.adapted_coefficient(beta, 1.0 / beta, target=0.25, rate=0.1)
    assert float(beta) == pytest.approx(4.0, rel=1e-3)


def rollouts(seed: int, b: int = 5, t: int = 7) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    arrays = {
        name: random.normal(size=(b, t)).astype(np.float32)
        for name in ("logprobs", "old", "reference", "values", "old_values")
    }
    lengths = random.integers(1, t + 1, b)
    return arrays | {
        "scores": random.normal(size=b).astype(np.float32),
        "where": np.arange(t) < lengths[:, None],
    }


def by_numpy(one: dict[str, np.ndarray]) -> dict[str, Any]:
    """The same in float64, text by text and token by token, over lists without padding."""
    beta, gamma, lam, clip, value_clip = 0.07, 0.97, 0.8, 0.15, 0.3
    told: dict[str, list[Any]] = {"rewards": [], "advantages": [], "returns": []}
    flat: dict[str, list[float]] = {"a": [], "v": [], "kl": [], "out": []}
    for i, mask in enumerate(one["where"]):
        part = {n: v[i][mask].astype(np.float64) for n, v in one.items() if v.ndim == 2}
        rewards = -beta * (part["old"] - part["reference"])
        rewards[-1] += float(one["scores"][i])
        values, n = part["old_values"], len(rewards)
        deltas = [rewards[j] + (gamma * values[j + 1] if j + 1 < n else 0) - values[j]
                  for j in range(n)]  # fmt: skip
        advantages = np.array(
            [sum((gamma * lam) ** m * deltas[j + m] for m in range(n - j)) for j in range(n)]
        )
        told["rewards"].append(rewards)
        told["advantages"].append(advantages)
        told["returns"].append(advantages + values)
    every = np.concatenate(told["advantages"])
    for i, mask in enumerate(one["where"]):
        part = {n: v[i][mask].astype(np.float64) for n, v in one.items() if v.ndim == 2}
        white = (told["advantages"][i] - every.mean()) / np.sqrt(every.var() + 1e-8)
        for j, a in enumerate(white):
            ratio = math.exp(part["logprobs"][j] - part["old"][j])
            flat["a"].append(-min(ratio * a, min(max(ratio, 1 - clip), 1 + clip) * a))
            flat["kl"].append(ratio - 1 - math.log(ratio))
            flat["out"].append(abs(ratio - 1) > clip)
            v, o, r = part["values"][j], part["old_values"][j], told["returns"][i][j]
            near = o + min(max(v - o, -value_clip), value_clip)
            flat["v"].append(max((v - r) ** 2, (near - r) ** 2) / 2)
    return told | {name: float(np.mean(values)) for name, values in flat.items()}


def by_jax(one: dict[str, Any]) -> dict[str, Any]:
    where = one["where"]
    rewards = jax.vmap(lambda s, p, q, w: ppo.token_rewards(s, p, q, coefficient=0.07, where=w))(
        one["scores"], one["old"], one["reference"], where
    )
    found = jax.vmap(
        lambda r, v, w: ppo.generalized_advantages(r, v, discount=0.97, decay=0.8, where=w)
    )(rewards, one["old_values"], where)
    white = ppo.whiten(found.advantages, where=where)
    pair = one["logprobs"], one["old"]
    values = one["values"], one["old_values"], found.returns
    return {
        "rewards": rewards,
        "advantages": found.advantages,
        "returns": found.returns,
        "a": ppo.policy_loss(*pair, white, clip=0.15, where=where),
        "v": ppo.value_loss(*values, clip=0.3, where=where),
        "kl": ppo.approximate_kl(*pair, where=where),
        "out": ppo.clip_fraction(*pair, clip=0.15, where=where),
    }


@pytest.mark.parametrize("seed", range(2))
def test_against_numpy_and_jitted(seed: int) -> None:
    one = rollouts(seed)
    wanted, found = by_numpy(one), by_jax(one)
    for name in ("rewards", "advantages", "returns"):
        for row, mask, mine in zip(found[name], one["where"], wanted[name], strict=True):
            np.testing.assert_allclose(row[mask], mine, atol=2e-5)
            assert (np.asarray(row)[~mask] == 0).all()
    for name in ("a", "v", "kl", "out"):
        assert float(found[name]) == pytest.approx(wanted[name], rel=2e-4, abs=2e-6), name
    jitted = jax.jit(by_jax)(one)
    for name, value in found.items():
        np.testing.assert_allclose(jitted[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("junk", [0.0, 1e4, -1e4, math.inf, math.nan])
def test_padding_changes_nothing(junk: float) -> None:
    one = {name: jnp.asarray(value) for name, value in rollouts(3).items()}
    where = one["where"]
    assert not where.all()
    filled = {
        name: jnp.where(where, value, junk) if value.ndim == 2 and name != "where" else value
        for name, value in one.items()
    }

    @jax.jit
    @functools.partial(jax.grad, argnums=(0, 1), has_aux=True)
    def slopes(logprobs: Any, values: Any, rest: Any) -> Any:
        found = by_jax({**rest, "logprobs": logprobs, "values": values})
        return found["a"] + found["v"], found

    mine, other = (slopes(some["logprobs"], some["values"], some) for some in (one, filled))
    assert float(jnp.abs(mine[0][0]).sum()) > 0 and float(jnp.abs(mine[0][1]).sum()) > 0
    jax.tree.map(np.testing.assert_array_equal, mine, other)
