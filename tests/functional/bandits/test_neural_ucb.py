"""NeuralUCB against eqs 10-12 in float64, and its identities."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from benchmarks.bandit_problems import problem
from benchmarks.confidence_dual import dual
from jaxrag.functional.bandits import interaction as bandits
from jaxrag.functional.bandits import neural_ucb, policies
from jaxrag.functional.bandits.confidence import diagonal, ignorant
from jaxrag.functional.bandits.confidence_full import full
from jaxrag.functional.bandits.fit import everything, half_sum_squared, newest, replay_fit, shuffled
from jaxrag.functional.bandits.linear_ucb import linear_ucb
from jaxrag.functional.bandits.networks import general, linear_uniform, mlp
from jaxrag.types import InputError
from tests.functional.bandits import references

D, ARMS, ROUNDS = 5, 3, 10
LAMBDA, BETA, NU, SCALE = 0.7, 1.3, 0.4, 0.6
KEY = jax.random.key(3)
CONTEXTS = jax.random.normal(jax.random.key(1), (ROUNDS, D))
FORMS = {"diagonal": diagonal, "full": full, "dual": partial(dual, pulls=ROUNDS)}


def network(*, shared: bool, hidden=(4, 3)):
    return mlp(D, ARMS, hidden=hidden, shared=shared, bias=shared, initializer=linear_uniform)


def policy(net, form="diagonal", *, exploration=None, fit=None, **options):
    made = FORMS[form](net, regularization=LAMBDA, **options)
    exploration = exploration or neural_ucb.outside(BETA)
    return neural_ucb.neural_ucb(net, confidence=made, exploration=exploration, fit=fit)


def trace(bandit, state, contexts):
    """Values and arms of rounds without training, and the last state; as one program."""

    def step(state, x):
        values = bandit.values(state, x)
        arm = bandit.select(state, x, KEY)
        return bandit.update(state, x, arm, jnp.zeros(())), (values, arm)

    state, (values, arms) = jax.jit(partial(jax.lax.scan, step))(state, contexts)
    return values, arms, state


def z_of(form: str, state, net) -> np.ndarray:
    """Z as the reference lays it out: [c p p], or [c p] of its diagonal."""
    if form == "full":
        return np.asarray(state.belief.z)
    flat = [
        np.asarray(1 / leaf).reshape((ARMS, -1) if net.separate else (1, -1))
        for leaf in state.belief
    ]
    return np.concatenate(flat, axis=1)


def by_reference_order(z: np.ndarray, net, hidden: int) -> np.ndarray:
    """The reference's first kernel of a shared network is [h, a d]; ours is [a h d]."""
    if net.separate:
        return z
    first = np.arange(hidden * ARMS * D).reshape(hidden, ARMS, D).transpose(1, 0, 2).ravel()
    order = np.concatenate([first, np.arange(first.size, z.shape[-1])])
    return z[:, order] if z.ndim == 2 else z[:, order][:, :, order]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("root", ["outside", "scheduled", "inside"])
def test_ten_rounds_equal_float64(shared: bool, form: str, root: str) -> None:
    net = network(shared=shared)
    ours, theirs = {
        "outside": (neural_ucb.outside(BETA), lambda squared, t: BETA * np.sqrt(squared)),
        "scheduled": (
            neural_ucb.outside(lambda t: BETA / jnp.sqrt(t + 1.0)),
            lambda squared, t: BETA / np.sqrt(t + 1) * np.sqrt(squared),
        ),
        "inside": (neural_ucb.inside(NU), lambda squared, t: np.sqrt(NU * squared)),
    }[root]
    bandit = policy(net, form, exploration=ours, scale=SCALE)
    state = bandit.init(KEY)
    values, arms, last = trace(bandit, state, CONTEXTS)
    expected, z = references.rounds(
        state.params,
        np.asarray(CONTEXTS, np.float64),
        arms=ARMS,
        shared=shared,
        diagonal=form == "diagonal",
        regularization=LAMBDA,
        bonus=theirs,
        scale=SCALE,
    )
    assert arms.tolist() == [each.arm for each in expected]
    for name in ("mean", "width", "ucb"):
        wanted = np.stack([getattr(each, name) for each in expected])
        np.testing.assert_allclose(getattr(values, name), wanted, rtol=1e-5, atol=1e-5)
    if form != "dual":
        wanted = by_reference_order(np.stack(z), net, hidden=4)
        np.testing.assert_allclose(z_of(form, last, net), wanted, rtol=1e-5, atol=1e-5)


def test_the_reference_gradient_is_a_slope() -> None:
    net = network(shared=True)
    layers = references.arm_weights(net.init(KEY), 1, shared=True)
    x = references.encode(np.asarray(CONTEXTS[0]), 1, ARMS, shared=True)
    for at, piece in enumerate(references.gradient(layers, x)):
        weights = layers[at // 2][at % 2]
        for index in list(np.ndindex(weights.shape))[:: max(1, weights.size // 5)]:
            was = weights[index]
            ends = []
            for step in (1e-6, -1e-6):
                weights[index] = was + step
                ends.append(references.value(layers, x))
            weights[index] = was
            np.testing.assert_allclose((ends[0] - ends[1]) / 2e-6, piece[index], atol=1e-7)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("hidden", [(6,), (5, 4, 3)])
@pytest.mark.parametrize("form", list(FORMS))
def test_outer_products_equal_written_out_gradients(shared, hidden, form) -> None:
    net = network(shared=shared, hidden=hidden)
    fast, slow = policy(net, form), policy(general(net), form)
    state = fast.init(KEY)
    contexts = jax.random.normal(jax.random.key(9), (10, D))
    one, arms, _ = trace(fast, state, contexts)
    two, same, _ = trace(slow, slow.init(KEY), contexts)
    assert arms.tolist() == same.tolist()
    assert len(set(arms.tolist())) > 1
    for ours, theirs in zip(one, two, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_outer_products_differ_by_rounding_only() -> None:
    net = mlp(64, 4, hidden=(32,))
    fast, slow = policy(net), policy(general(net))
    x = jax.random.normal(KEY, (64,)) / 8
    state = fast.update(fast.init(KEY), x, jnp.asarray(2), jnp.zeros(()))
    for ours, theirs in zip(fast.values(state, x), slow.values(state, x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def played(bandit, key, *, batch: int, rounds: int = 24):
    contexts = jax.random.normal(jax.random.key(5), (rounds, D))
    rewards = jax.random.uniform(jax.random.key(6), (rounds, ARMS))
    return bandits.interact(bandit, bandit.init(key), contexts, rewards, key, batch=batch)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("form", list(FORMS))
def test_batched_update_equals_one_by_one(shared: bool, form: str) -> None:
    net = network(shared=shared)
    made = FORMS[form](net, regularization=LAMBDA)
    params = net.init(KEY)
    contexts = jax.random.normal(jax.random.key(5), (9, D))
    arms = jnp.array([2, 0, 2, 2, 0, 2, 2, 2, 2])  # seven of one arm, two of another, none
    together = jax.jit(made.update_batch)(made.init(params), params, contexts, arms)
    single, update = made.init(params), jax.jit(made.update)
    for x, arm in zip(contexts, arms, strict=True):
        single = update(single, params, x, arm)
    for one, other in zip(*map(jax.tree.leaves, (together, single)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", [(6,), (5, 4)])
def test_rounds_ahead_equal_one_by_one(hidden) -> None:
    """Between fits: the same arms and 1/Z, whether contexts are looked at one by one or ahead."""
    net = mlp(D, ARMS, hidden=hidden, bias=True, initializer=linear_uniform)
    fit = replay_fit(net, optax.sgd(0.05), capacity=24, sampler=newest(24))
    schedule = neural_ucb.outside(lambda t: 3.0 / jnp.sqrt(t + 1.0))
    bandit = policy(net, exploration=schedule, scale=SCALE, fit=fit)
    assert bandit.rounds is not None
    contexts = jax.random.normal(jax.random.key(5), (48, D))
    rewards = jax.random.uniform(jax.random.key(6), (48, ARMS))
    play = partial(bandits.interact, fit_every=24)
    state = bandit.init(KEY)
    ahead = jax.jit(partial(play, bandit))(state, contexts, rewards, KEY)
    plain = jax.jit(partial(play, bandit._replace(rounds=None)))(state, contexts, rewards, KEY)
    assert ahead.arms.tolist() == plain.arms.tolist()
    assert len(set(ahead.arms.tolist())) == ARMS
    assert ahead.state.fits == plain.state.fits == 2
    for one, other in zip(*map(jax.tree.leaves, (ahead.state, plain.state)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    # A batch of 8 chooses all its arms before it learns: other arms, or the above says nothing.
    batches = jax.jit(partial(play, bandit, batch=8))(state, contexts, rewards, KEY)
    assert batches.arms.tolist() != plain.arms.tolist()


def test_jit_equals_no_jit() -> None:
    bandit = neural_ucb.paper(D, ARMS, hidden=(4,), batch=2)

    def two_rounds(state):
        for x in CONTEXTS[:2]:
            state = bandit.update(state, x, bandit.select(state, x, KEY), jnp.asarray(0.5))
        return bandit.fit(state, KEY)

    state = bandit.init(KEY)
    for one, other in zip(
        *map(jax.tree.leaves, (two_rounds(state), jax.jit(two_rounds)(state))), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_vmap_over_seeds_and_settings_equals_a_loop() -> None:
    def run(key, regularization, beta, rate):
        bandit = neural_ucb.paper(
            D, ARMS, hidden=(4,), beta=beta, regularization=regularization, learning_rate=rate,
            batch=6,
        )  # fmt: skip
        return played(bandit, key, batch=6)

    keys = jax.random.split(KEY, 3)
    settings = (jnp.array([0.5, 1.0, 2.0]), jnp.array([0.0, 1.0, 3.0]), jnp.array([0.1, 0.01, 0.2]))
    together = jax.jit(jax.vmap(run))(keys, *settings)
    for at in range(3):
        alone = jax.jit(run)(keys[at], *(setting[at] for setting in settings))
        assert together.arms[at].tolist() == alone.arms.tolist()
        np.testing.assert_allclose(
            together.state.params[0].kernel[at], alone.state.params[0].kernel, rtol=1e-5, atol=1e-6
        )


def test_the_gradient_is_that_of_the_choice_and_training_comes_after() -> None:
    net = network(shared=False)
    bandit = neural_ucb.paper(D, ARMS, hidden=(4,), batch=2)
    out = jax.jit(partial(played, bandit, batch=2, rounds=2))(KEY)
    frozen = neural_ucb.paper(D, ARMS, hidden=(4,), batch=2, learning_rate=1e-30)
    still = jax.jit(partial(played, frozen, batch=2, rounds=2))(KEY)
    for one, other in zip(out.state.belief, still.state.belief, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.allclose(out.state.params[0].kernel, still.state.params[0].kernel)
    assert (out.state.fits, out.state.round) == (1, 2)
    assert net.arms == ARMS


def test_released_trains_every_round_and_then_every_fourth() -> None:
    bandit = neural_ucb.released(
        D, ARMS, capacity=24, hidden=(4,), steps=7, tolerance=0.0, often=10, every=4
    )
    out = jax.jit(partial(played, bandit, batch=1))(KEY)
    # Rounds 1-9 (fewer than 10 played), then 12, 16, 20, 24.
    assert out.state.fits == 13
    assert out.state.steps == 7
    assert out.state.params[0].kernel.shape == (ARMS, 4, D)
    assert out.state.params[1].kernel.shape == (4,)


def test_released_bonus_has_lambda_nu_inside_the_root() -> None:
    bandit = neural_ucb.released(D, ARMS, capacity=4, nu=NU, regularization=LAMBDA)
    values = bandit.values(bandit.init(KEY), CONTEXTS[0])
    np.testing.assert_allclose(
        values.ucb - values.mean, values.width * np.sqrt(LAMBDA * NU), rtol=1e-4
    )


def test_zhou_algorithm_from_its_settings() -> None:
    """Restarts, the anchor and the scale of the gradient are settings that go together."""
    net = mlp(D, ARMS, hidden=(4,), shared=True)
    fit = replay_fit(
        net, optax.sgd(1e-2), capacity=24, sampler=everything(), steps=5, anchor=0.4,
        restart=True, loss=half_sum_squared,
    )  # fmt: skip
    bandit = policy(net, "full", scale=1 / 2, fit=fit)
    out = jax.jit(partial(played, bandit, batch=1))(KEY)
    assert out.state.fits == 24
    assert np.isfinite(jax.tree.leaves(out.state.params)[0]).all()


def test_ignorant_widths_are_zero() -> None:
    net = network(shared=False)
    bandit = neural_ucb.neural_ucb(
        net, confidence=ignorant(net), exploration=neural_ucb.outside(1.0), fit=None
    )
    values = bandit.values(bandit.init(KEY), CONTEXTS[0])
    assert values.width.tolist() == [0.0] * ARMS
    assert values.ucb.tolist() == values.mean.tolist()
    out = jax.jit(partial(played, bandit, batch=1))(KEY)
    again = jax.jit(partial(played, bandit, batch=8))(KEY)
    assert out.arms.tolist() == again.arms.tolist()


@pytest.mark.parametrize("kind", ["quadratic", "cosine"])
def test_beats_linear_ucb_where_rewards_are_not_linear(kind) -> None:
    """One small problem with little noise; the paper's own sizes are the experiments'."""
    made = problem(kind, jax.random.key(0), rounds=600, d=4, arms=4, noise=0.1)
    net = mlp(4, 4, hidden=(32,))
    fit = replay_fit(net, optax.adam(0.01), capacity=600, sampler=shuffled(32), steps=8)
    neural = neural_ucb.neural_ucb(
        net, confidence=diagonal(net), exploration=neural_ucb.outside(2.0), fit=fit
    )
    lost = {}
    for name, bandit in {"neural": neural, "linear": linear_ucb(4, 4, alpha=0.3)}.items():
        play = jax.jit(partial(bandits.interact, bandit, batch=4))
        out = play(bandit.init(KEY), made.contexts, made.rewards, KEY)
        lost[name] = policies.regret(made.expected, out.arms)
    assert lost["neural"][-1] < 0.5 * lost["linear"][-1]
    # Sublinear: the second half costs less than half of the first.
    assert lost["neural"][-1] - lost["neural"][299] < 0.5 * lost["neural"][299]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: neural_ucb.paper(D, ARMS, regularization=0.0), "regularization is 0.0"),
        (lambda: neural_ucb.paper(D, ARMS, regularization=float("nan")), "regularization is nan"),
        (lambda: neural_ucb.paper(D, ARMS, learning_rate=-1.0), "learning_rate is -1.0"),
        (lambda: neural_ucb.paper(D, 0), "0 arms"),
        (lambda: neural_ucb.paper(D, ARMS, hidden=()), "a hidden layer"),
        (lambda: neural_ucb.released(D, ARMS, capacity=0), "capacity 0"),
        (lambda: neural_ucb.released(D, ARMS, capacity=9, every=0), "every 0 rounds"),
        (lambda: linear_ucb(D, ARMS, regularization=-1), "regularization is -1"),
        (lambda: dual(network(shared=False), pulls=0), "0 pulls"),
        (lambda: full(network(shared=False), drift=0.0), "drift is 0.0"),
    ],
)
def test_bad_settings(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_batch_larger_than_the_buffer() -> None:
    bandit = neural_ucb.paper(D, ARMS, hidden=(4,), batch=4)
    with pytest.raises(InputError, match="a batch of 12 rounds does not fit the replay buffer's 4"):
        played(bandit, KEY, batch=12)
