"""NeuralUCB against eqs 10-12 in float64, and its identities."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrag.functional.bandits import interaction as bandits
from jaxrag.functional.bandits import neural_ucb, policies
from jaxrag.functional.bandits.confidence import diagonal, full, zero_width
from jaxrag.functional.bandits.fit import newest, replay_fit, shuffled
from jaxrag.functional.bandits.networks import general, linear_uniform, mlp
from jaxrag.functional.bandits.policies import linear_ucb
from jaxrag.types import InputError
from tests.functional.bandits import references
from tests.functional.bandits.draws import normal, uniform
from tests.functional.bandits.problems import problem

D, ARMS, ROUNDS = 5, 3, 10
LAMBDA, BETA, NU = 0.7, 1.3, 0.4
KEY = jax.random.key(3)
CONTEXTS = normal(1, (ROUNDS, D))
FORMS = {"diagonal": diagonal, "full": full}


def network(*, shared: bool, hidden=(4, 3)):
    return mlp(D, ARMS, hidden=hidden, shared=shared, bias=shared, initializer=linear_uniform)


def policy(net, form="diagonal", *, exploration=None, fit=None):
    made = FORMS[form](net, regularization=LAMBDA)
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


@pytest.mark.parametrize(
    ("shared", "form", "root"),
    [
        (False, "diagonal", "outside"),
        (False, "diagonal", "scheduled"),
        (True, "diagonal", "inside"),
        (False, "full", "inside"),
        (True, "full", "outside"),
    ],
)
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
    bandit = policy(net, form, exploration=ours)
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
    )
    assert arms.tolist() == [each.arm for each in expected]
    for name in ("mean", "width", "ucb"):
        wanted = np.stack([getattr(each, name) for each in expected])
        np.testing.assert_allclose(getattr(values, name), wanted, rtol=1e-5, atol=1e-5)
    wanted = by_reference_order(np.stack(z), net, hidden=4)
    np.testing.assert_allclose(z_of(form, last, net), wanted, rtol=1e-5, atol=1e-5)


def test_the_reference_gradient_equals_finite_differences() -> None:
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


@pytest.mark.parametrize(
    ("shared", "hidden", "form"),
    [(False, (6,), "diagonal"), (True, (5, 4, 3), "diagonal"), (False, (5, 4, 3), "full")],
)
def test_outer_products_equal_written_out_gradients(shared, hidden, form) -> None:
    net = network(shared=shared, hidden=hidden)
    fast, slow = policy(net, form), policy(general(net), form)
    contexts = normal(9, (10, D))
    one, arms, _ = trace(fast, fast.init(KEY), contexts)
    two, same, _ = trace(slow, slow.init(KEY), contexts)
    assert arms.tolist() == same.tolist()
    assert len(set(arms.tolist())) > 1
    for ours, theirs in zip(one, two, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def played(bandit, key, *, batch: int, rounds: int = 24):
    contexts = normal(5, (rounds, D))
    rewards = uniform(6, (rounds, ARMS))
    return bandits.interact(bandit, bandit.init(key), contexts, rewards, key, batch=batch)


@pytest.mark.parametrize(
    ("shared", "form"), [(False, "diagonal"), (True, "diagonal"), (False, "full")]
)
def test_batched_update_equals_one_by_one(shared: bool, form: str) -> None:
    net = network(shared=shared)
    made = FORMS[form](net, regularization=LAMBDA)
    params = net.init(KEY)
    contexts = normal(5, (9, D))
    arms = jnp.array([2, 0, 2, 2, 0, 2, 2, 2, 2])  # seven of one arm, two of another, none
    together = jax.jit(made.update_batch)(made.init(params), params, contexts, arms)
    step = lambda belief, seen: (made.update(belief, params, *seen), None)  # noqa: E731
    single, _ = jax.jit(partial(jax.lax.scan, step))(made.init(params), (contexts, arms))
    for one, other in zip(*map(jax.tree.leaves, (together, single)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_several_rounds_at_once_equal_one_by_one() -> None:
    """Between fits `Bandit.rounds` gives the arms and the state of select and update."""
    net = mlp(D, ARMS, hidden=(5, 4), bias=True, initializer=linear_uniform)
    fit = replay_fit(net, optax.sgd(0.05), capacity=24, sampler=newest(24))
    schedule = neural_ucb.outside(lambda t: 3.0 / jnp.sqrt(t + 1.0))
    bandit = policy(net, exploration=schedule, fit=fit)
    assert bandit.rounds is not None
    contexts = normal(5, (48, D))
    rewards = uniform(6, (48, ARMS))
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


@pytest.mark.slow
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


def test_the_confidence_gradient_precedes_training() -> None:
    @jax.jit
    def play(learning_rate):
        bandit = neural_ucb.paper(D, ARMS, hidden=(4,), batch=2, learning_rate=learning_rate)
        return played(bandit, KEY, batch=2, rounds=2)

    out, still = play(1e-2), play(1e-30)
    for one, other in zip(out.state.belief, still.state.belief, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.allclose(out.state.params[0].kernel, still.state.params[0].kernel)
    assert (out.state.fits, out.state.round) == (1, 2)


def test_released_fits_and_keeps_plays_as_the_public_code() -> None:
    bandit = neural_ucb.released(
        D, ARMS, capacity=24, hidden=(4,), steps=7, tolerance=0.0, often=10, every=4
    )
    # The code counts rounds t from 0, trains where t < 10 or t % 4 == 0, and adds a play to its
    # history only when it trains: after 0 to 9, 12, 16 and 20 of 24 rounds.
    kept = [*range(10), 12, 16, 20]
    out = jax.jit(partial(played, bandit, batch=1))(KEY)
    assert (out.state.fits, out.state.buffer.count) == (13, 13)
    assert out.state.steps == 7
    assert out.state.buffer.rewards[:13].tolist() == out.rewards[np.array(kept)].tolist()
    assert out.state.buffer.arms[:13].tolist() == out.arms[np.array(kept)].tolist()


def test_released_bonus_has_lambda_nu_inside_the_root() -> None:
    bandit = neural_ucb.released(D, ARMS, capacity=4, nu=NU, regularization=LAMBDA)
    values = jax.jit(lambda key: bandit.values(bandit.init(key), CONTEXTS[0]))(KEY)
    np.testing.assert_allclose(
        values.ucb - values.mean, values.width * np.sqrt(LAMBDA * NU), rtol=1e-4
    )


def test_zero_width_has_no_exploration() -> None:
    net = network(shared=False)
    bandit = neural_ucb.neural_ucb(
        net, confidence=zero_width(net), exploration=neural_ucb.outside(1.0), fit=None
    )
    values = jax.jit(lambda key: bandit.values(bandit.init(key), CONTEXTS[0]))(KEY)
    assert values.width.tolist() == [0.0] * ARMS
    assert values.ucb.tolist() == values.mean.tolist()
    out = jax.jit(partial(played, bandit, batch=8))(KEY)
    contexts = normal(5, (24, D))
    greedy = jax.jit(jax.vmap(partial(bandit.greedy, out.state)))(contexts)
    assert out.arms.tolist() == greedy.tolist()


@pytest.mark.slow
def test_beats_linear_ucb_where_rewards_are_not_linear() -> None:
    """One small problem with little noise; the paper's own sizes are the experiments'."""
    made = problem("quadratic", jax.random.key(0), rounds=600, d=4, arms=4, noise=0.1)
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
    ],
)
def test_invalid_settings_are_refused(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_batch_larger_than_the_buffer_is_refused() -> None:
    bandit = neural_ucb.paper(D, ARMS, hidden=(4,), batch=4)
    with pytest.raises(InputError, match="a batch of 12 rounds does not fit the replay buffer's 4"):
        jax.eval_shape(partial(played, bandit, batch=12), KEY)
