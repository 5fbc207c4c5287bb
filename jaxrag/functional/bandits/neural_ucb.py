"""NeuralUCB: a bandit whose arms are valued by networks, with bonuses for what they are unsure of.

docs/methods.md, "ARS-RAG: bandit (NeuralUCB)" (eqs 10-12), after Zhou et al. (2020). An arm's value
is f + beta sigma, f its network's reward in the context and sigma^2 = g' Z^-1 g the squared width
of the reward's gradient g under the confidence matrix Z, to which a round adds g g' of the arm that
it played. The gradient is that of the weights the arm was chosen with: training (`Bandit.fit`)
comes after.

`paper` and `released` put together what ARS writes and what Zhou et al.'s public code does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxrag.functional.bandits.confidence import Confidence, check_positive, diagonal
from jaxrag.functional.bandits.fit import Buffer, Fit, append, empty, newest, replay_fit, shuffled
from jaxrag.functional.bandits.interaction import Bandit, Values
from jaxrag.functional.bandits.networks import Network, Params, linear_uniform, mlp
from jaxrag.types import InputError

Exploration = Callable[[Array, Array], Array]
"""squared widths [a], rounds played so far -> the bonus added to the means [a]."""

Number = float | Float[Array, ""]


class NeuralState(NamedTuple):
    """Where a neural bandit stands.

    Attributes:
      params: of the network.
      belief: of the confidence matrix.
      buffer: what was played; None without a fit.
      training: what the fit keeps.
      round: rounds played.
      fits: times that the networks were trained.
      steps: gradient steps that the last fit took.
    """

    params: Params
    belief: Any
    buffer: Buffer | None
    training: Any
    round: Int[Array, ""]
    fits: Int[Array, ""]
    steps: Int[Array, ""]


def outside(beta: Number | Callable[[Array], Array]) -> Exploration:
    """beta sigma (eq 11); ``beta`` may be a function of the rounds played, from 0."""

    def bonus(squared: Float[Array, " a"], played: Int[Array, ""]) -> Float[Array, " a"]:
        return (beta(played) if callable(beta) else beta) * jnp.sqrt(squared)

    return bonus


def inside(nu: Number) -> Exploration:
    """sqrt(nu sigma^2), the factor under the root; lambda nu in Zhou et al.'s code."""
    return lambda squared, played: jnp.sqrt(nu * squared)


def neural_ucb(
    network: Network,
    *,
    confidence: Confidence,
    exploration: Exploration,
    fit: Fit | None,
    due: Callable[[Array], Bool[Array, ""]] | None = None,
) -> Bandit:
    """A neural bandit from its parts.

    Args:
      network: of all arms (`bandit_networks.mlp`).
      confidence: the matrix Z of the same network: `diagonal`, `full`, `dual`, or `ignorant`.
      exploration: what a width adds to a mean: `outside` or `inside` the root.
      fit: how the network learns (`replay_fit`); None leaves it as it is and keeps no plays.
      due: rounds played -> whether a fit that is called for takes place; None is always.
    """

    def init(key: jax.Array) -> NeuralState:
        params = network.init(key)
        zero = jnp.zeros((), jnp.int32)
        buffer = None if fit is None else empty(fit.capacity, network.features)
        training = None if fit is None else fit.init(params)
        return NeuralState(params, confidence.init(params), buffer, training, zero, zero, zero)

    def values(state: NeuralState, x: Float[Array, " d"]) -> Values:
        mean, squared = confidence.look(state.belief, state.params, x)
        return Values(mean, jnp.sqrt(squared), mean + exploration(squared, state.round))

    def update(
        state: NeuralState, x: Float[Array, " d"], arm: Int[Array, ""], reward: Float[Array, ""]
    ) -> NeuralState:
        belief = confidence.update(state.belief, state.params, x, arm)
        return _seen(state, belief, x[None], jnp.asarray(arm)[None], jnp.asarray(reward)[None])

    def update_batch(
        state: NeuralState,
        contexts: Float[Array, "b d"],
        arms: Int[Array, " b"],
        rewards: Float[Array, " b"],
    ) -> NeuralState:
        belief = confidence.update_batch(state.belief, state.params, contexts, arms)
        return _seen(state, belief, contexts, arms, rewards)

    def rounds(
        state: NeuralState, contexts: Float[Array, "b d"], rewards: Float[Array, "b a"], keys: Array
    ) -> tuple[NeuralState, Int[Array, " b"]]:
        def choose(mean: Array, squared: Array, row: Array) -> Array:
            return jnp.argmax(mean + exploration(squared, state.round + row))

        assert confidence.rounds is not None
        belief, arms = confidence.rounds(state.belief, state.params, contexts, choose)
        won = jnp.take_along_axis(rewards, arms[:, None], axis=1)[:, 0]
        return _seen(state, belief, contexts, arms, won), arms

    def train(state: NeuralState, key: jax.Array) -> NeuralState:
        if fit is None:
            return state
        run = partial(_trained, fit, key=key)
        return run(state) if due is None else lax.cond(due(state.round), run, lambda s: s, state)

    return Bandit(
        init=init,
        values=values,
        select=lambda state, x, key: jnp.argmax(values(state, x).ucb),
        update=update,
        fit=train,
        greedy=lambda state, x: jnp.argmax(network.rewards(state.params, x)),
        update_batch=update_batch if network.factored else None,
        rounds=None if confidence.rounds is None else rounds,
    )


def _trained(fit: Fit, state: NeuralState, *, key: jax.Array) -> NeuralState:
    assert state.buffer is not None
    training, params, steps = fit.run(state.training, state.params, state.buffer, key)
    return state._replace(params=params, training=training, fits=state.fits + 1, steps=steps)


def _seen(
    state: NeuralState, belief: Any, contexts: Array, arms: Array, rewards: Array
) -> NeuralState:
    buffer = state.buffer and append(state.buffer, contexts, arms, rewards)
    return state._replace(belief=belief, buffer=buffer, round=state.round + len(arms))


def paper(
    d: int,
    arms: int,
    *,
    hidden: tuple[int, ...] = (100,),
    beta: Number | Callable[[Array], Array] = 1.0,
    regularization: Number = 1.0,
    learning_rate: Number = 1e-2,
    batch: int = 32,
    confidence: Callable[..., Confidence] = diagonal,
) -> Bandit:
    """ARS as printed: a network and a Z for every arm, beta outside the root.

    After every batch one step of gradient descent on what was just played. The paper states the
    batch of 32; width, beta, Z_0 = ``regularization`` I and the learning rate are ours. Z is
    diagonal unless ``confidence`` says otherwise (``full``, or ``partial(dual, pulls=n)``): the
    paper's Z of a 768-d context and 100 hidden units is 24 GB an arm in float32.

    Args:
      d: features of a context.
      arms: how many.
      hidden: units of the hidden layers.
      beta: exploration factor, or a function of the rounds played.
      regularization: lambda.
      learning_rate: of the step.
      batch: rounds that a step learns from, the ``batch`` of `interact`.
      confidence: network, regularization -> the confidence matrix.
    """
    check_positive(learning_rate=learning_rate)
    network = mlp(d, arms, hidden=hidden)
    fit = replay_fit(network, optax.sgd(learning_rate), capacity=batch, sampler=newest(batch))
    return neural_ucb(
        network,
        confidence=confidence(network, regularization=regularization),
        exploration=outside(beta),
        fit=fit,
    )


def released(
    d: int,
    arms: int,
    *,
    capacity: int,
    hidden: tuple[int, ...] = (100,),
    nu: Number = 1.0,
    regularization: Number = 1e-3,
    learning_rate: Number = 1e-2,
    steps: int = 1000,
    tolerance: Number = 1e-3,
    often: int = 2000,
    every: int = 100,
) -> Bandit:
    """Zhou et al.'s public code: one network for all arms, lambda nu inside the root, diagonal Z.

    The context stands in the arm's block of the input. A fit goes over the shuffled history play
    by play, with weight decay lambda, at most ``steps`` or until a pass's mean loss is at most
    ``tolerance``, from the weights of the last fit; it takes place every round at first.

    Args:
      d: features of a context.
      arms: how many.
      capacity: rounds of history held; the code holds all, so give the number of rounds.
      hidden: units of the hidden layers.
      nu: exploration factor.
      regularization: lambda, of Z and of the weight decay.
      learning_rate: of gradient descent.
      steps: the most of a fit.
      tolerance: mean loss of a pass at which a fit ends.
      often: rounds up to which every round trains.
      every: rounds between fits from then on.
    """
    check_positive(learning_rate=learning_rate, nu=nu)
    if every < 1:
        raise InputError(f"a fit every {every} rounds: at least 1.")
    network = mlp(d, arms, hidden=hidden, shared=True, bias=True, initializer=linear_uniform)
    optimizer = optax.chain(optax.add_decayed_weights(regularization), optax.sgd(learning_rate))
    fit = replay_fit(
        network,
        optimizer,
        capacity=capacity,
        sampler=shuffled(1),
        steps=steps,
        tolerance=tolerance,
    )
    return neural_ucb(
        network,
        confidence=diagonal(network, regularization=regularization),
        exploration=inside(regularization * nu),
        fit=fit,
        due=lambda played: (played < often) | (played % every == 0),
    )
