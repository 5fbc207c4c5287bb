"""NeuralUCB: a contextual bandit whose rewards are predicted by networks, with confidence bounds.

docs/methods, "ARS-RAG: bandit (NeuralUCB)" (eqs 10-12), after Zhou et al. (2020). An arm's value
is f + beta sigma: f is its network's reward in the context, and sigma^2 = g' Z^-1 g the squared
width of the reward's gradient g under the confidence matrix Z, to which each round adds g g' of the
arm that was played. g is taken at the weights that the arm was chosen with; training (`Bandit.fit`)
comes after.

`paper` follows ARS-RAG's text, `released` Zhou et al.'s public code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

from jaxrag.functional.bandits.confidence import Confidence, check_positive, diagonal
from jaxrag.functional.bandits.fit import Buffer, Fit, append, empty, newest, replay_fit, shuffled
from jaxrag.functional.bandits.interaction import Bandit, Values, rewards_of
from jaxrag.functional.bandits.networks import Network, Params, linear_uniform, mlp
from jaxrag.types import InputError

Exploration = Callable[[Array, Array], Array]
"""squared widths [a], rounds played so far -> bonus that is added to the means [a]."""

Number = float | Float[Array, ""]


class NeuralState(NamedTuple):
    """State of a neural bandit; ``steps`` are the gradient steps of the last fit.

    ``belief`` is the state of the confidence matrix. Without a fit, ``buffer`` (the plays) and
    ``optimizer`` (the state of the fit's optimiser) are None.
    """

    params: Params
    belief: Any
    buffer: Buffer | None
    optimizer: Any
    round: Int[Array, ""]
    fits: Int[Array, ""]
    steps: Int[Array, ""]


def outside(beta: Number | Callable[[Array], Array]) -> Exploration:
    """beta sigma (eq 11); ``beta`` may be a function of the rounds played, from 0."""

    def bonus(squared: Float[Array, " a"], played: Int[Array, ""]) -> Float[Array, " a"]:
        return (beta(played) if callable(beta) else beta) * jnp.sqrt(squared)

    return bonus


def inside(nu: Number) -> Exploration:
    """sqrt(nu sigma^2), the factor inside the root (lambda nu in Zhou et al.'s code)."""
    return lambda squared, played: jnp.sqrt(nu * squared)


def neural_ucb(
    network: Network,
    *,
    confidence: Confidence,
    exploration: Exploration,
    fit: Fit | None,
    due: Callable[[Array], Array] | None = None,
) -> Bandit:
    """A neural bandit from its parts.

    Args:
      network: of all arms (`networks.mlp`).
      confidence: of the same network: `diagonal`, `full` or `zero_width`.
      exploration: bonus of a width: `outside` or `inside`.
      fit: training of the network (`replay_fit`); None keeps its initial weights.
      due: round (from 0) -> whether its play is kept and a fit after it takes place; None: always.
    """

    def init(key: jax.Array) -> NeuralState:
        params = network.init(key)
        zero = jnp.zeros((), jnp.int32)
        buffer = None if fit is None else empty(fit.capacity, network.features)
        optimizer = None if fit is None else fit.init(params)
        return NeuralState(params, confidence.init(params), buffer, optimizer, zero, zero, zero)

    def values(state: NeuralState, x: Float[Array, " d"]) -> Values:
        mean, squared = confidence.evaluate(state.belief, state.params, x)
        return Values(mean, jnp.sqrt(squared), mean + exploration(squared, state.round))

    def recorded(
        state: NeuralState, belief: Any, contexts: Array, arms: Array, rewards: Array
    ) -> NeuralState:
        buffer = state.buffer
        if buffer is not None:
            keep = None if due is None else due(state.round + jnp.arange(len(arms)))
            buffer = append(buffer, contexts, arms, rewards, where=keep)
        return state._replace(belief=belief, buffer=buffer, round=state.round + len(arms))

    def update(
        state: NeuralState, x: Float[Array, " d"], arm: Int[Array, ""], reward: Float[Array, ""]
    ) -> NeuralState:
        belief = confidence.update(state.belief, state.params, x, arm)
        return recorded(state, belief, x[None], jnp.asarray(arm)[None], jnp.asarray(reward)[None])

    def update_batch(
        state: NeuralState,
        contexts: Float[Array, "b d"],
        arms: Int[Array, " b"],
        rewards: Float[Array, " b"],
    ) -> NeuralState:
        belief = confidence.update_batch(state.belief, state.params, contexts, arms)
        return recorded(state, belief, contexts, arms, rewards)

    def rounds(
        state: NeuralState, contexts: Float[Array, "b d"], rewards: Float[Array, "b a"], keys: Array
    ) -> tuple[NeuralState, Int[Array, " b"]]:
        def choose(mean: Array, squared: Array, row: int) -> Array:
            return jnp.argmax(mean + exploration(squared, state.round + row))

        assert confidence.rounds is not None
        belief, arms = confidence.rounds(state.belief, state.params, contexts, choose)
        return recorded(state, belief, contexts, arms, rewards_of(rewards, arms)), arms

    def train(state: NeuralState, key: jax.Array) -> NeuralState:
        if fit is None:
            return state
        fitted = partial(_fitted, fit, key=key)
        if due is None:
            return fitted(state)
        return lax.cond(due(state.round - 1), fitted, lambda state: state, state)

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


def _fitted(fit: Fit, state: NeuralState, *, key: jax.Array) -> NeuralState:
    assert state.buffer is not None
    optimizer, params, steps = fit.run(state.optimizer, state.params, state.buffer, key)
    return state._replace(params=params, optimizer=optimizer, fits=state.fits + 1, steps=steps)


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

    After every batch, one step of gradient descent on its plays. The paper gives the batch of 32;
    width, beta, lambda and the learning rate are ours. Z is diagonal by default: the whole Z of a
    768-d context and 100 hidden units has 24 GB per arm in float32.

    Args:
      d: features of a context.
      hidden: widths of the hidden layers.
      beta: exploration factor, or a function of the rounds played.
      regularization: lambda, Z_0 = lambda I.
      learning_rate: of gradient descent.
      batch: plays of a step; the ``batch`` of `interact`.
      confidence: network, regularization -> confidence matrix.
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

    The context is written into the arm's block of the input. A fit takes single plays of the
    shuffled history, with weight decay lambda, for at most ``steps`` steps or until a pass's mean
    loss is at most ``tolerance``, from the weights of the last fit. Rounds (from 0) below ``often``
    and multiples of ``every`` are fitted after; plays of other rounds are not kept.

    Args:
      d: features of a context.
      capacity: plays held; the code holds all, so give the number of rounds.
      hidden: widths of the hidden layers.
      nu: exploration factor.
      regularization: lambda, of Z and of the weight decay.
      learning_rate: of gradient descent.
      steps: the most of a fit.
      tolerance: mean loss of a pass at which a fit ends.
      often: rounds that are all fitted after.
      every: rounds between later fits.
    """
    check_positive(learning_rate=learning_rate, nu=nu)
    if every < 1:
        raise InputError(f"a fit every {every} rounds: at least 1.")
    network = mlp(d, arms, hidden=hidden, shared=True, bias=True, initializer=linear_uniform)
    fit = replay_fit(
        network,
        optax.chain(optax.add_decayed_weights(regularization), optax.sgd(learning_rate)),
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
        due=lambda round: (round < often) | (round % every == 0),
    )
