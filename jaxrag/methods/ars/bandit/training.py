"""Training a selector from a table of stored rewards, without a language model.

ARS-RAG's protocol (docs/methods.md, "ARS-RAG: bandit (NeuralUCB)"): 500 epochs in batches of 32,
the test policy's reward after every epoch, several seeds. A seed fixes initial weights, order and
draws; it is the same for all reward schemes, and the program is compiled once for all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrag.functional.bandits.interaction import check_table
from jaxrag.methods.ars.bandit.program import Learned, Replay, program
from jaxrag.methods.ars.bandit.reward_table import RewardTable
from jaxrag.methods.ars.bandit.selector import Selector, prepared, principal_axes
from jaxrag.methods.ars.bandit.settings import NeuralUcb, Policy, Scheme, Training
from jaxrag.types import InputError


class Trained(NamedTuple):
    """What a training came to.

    Attributes:
      played: mean reward of what was played while learning, by epoch.
      train, test: mean reward of the watched policy after each epoch, by part.
      chosen: K of every test question after the last epoch, from 1.
      selector: what was trained; None for a policy that has no networks.
    """

    played: Float[np.ndarray, " e"]
    train: Float[np.ndarray, " e"]
    test: Float[np.ndarray, " e"]
    chosen: Int[np.ndarray, " q"]
    selector: Selector | None


class Contexts(NamedTuple):
    """A table's contexts as networks take them, and the axes that they were projected onto."""

    rows: Float[Array, "q r"]
    axes: Float[Array, "d r"] | None


def contexts_of(table: RewardTable, dimensions: int) -> Contexts:
    """The contexts of all questions; axes are those of the training questions alone.

    Raises:
      InputError: more dimensions are wanted than there are.
    """
    axes = None
    if dimensions:
        axes = jnp.asarray(principal_axes(table.contexts[table.train], dimensions))
    return Contexts(prepared(jnp.asarray(table.contexts), axes), axes)


def train(
    table: RewardTable,
    contexts: Contexts,
    scheme: Scheme,
    policy: Policy,
    training: Training,
    *,
    seed: int,
) -> Trained:
    """Trains once; the same arguments give the same bits.

    Raises:
      InputError: the table and the settings do not fit, or the networks diverged.
    """
    paid = scheme.rewards(table.base)
    check_table(contexts.rows, paid, table.arms)
    parts = [Replay(contexts.rows[rows], jnp.asarray(paid[rows])) for rows in _parts(table)]
    shapes = tuple(part.contexts.shape for part in parts)
    with _COMPILING:  # so that threads that train side by side compile a program once
        learn = _compiled(policy, dataclasses.replace(training, dimensions=0), table.arms, shapes)
    learned = learn(jax.random.key(seed), *parts)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(learned.state)):
        raise InputError(
            f"{policy.name} diverged on {table.name}, {scheme.name}, seed {seed}: its weights are "
            f"no longer finite after {training.epochs} epochs. Lower the learning rate."
        )
    played, watched, tested = (np.asarray(curve, np.float64) for curve in learned[1:4])
    chosen = np.asarray(learned.chosen) + 1
    return Trained(played, watched, tested, chosen, _selector(table, contexts, policy, learned))


def _parts(table: RewardTable) -> tuple[Bool[np.ndarray, " q"], Bool[np.ndarray, " q"]]:
    return table.train, ~table.train


_COMPILING = threading.Lock()


@functools.lru_cache(maxsize=16)
def _compiled(
    policy: Policy, training: Training, arms: int, shapes: tuple[tuple[int, ...], ...]
) -> Callable[..., Learned]:
    learn = program(
        policy.bandit(shapes[0][1], arms, training.batch),
        epochs=training.epochs,
        batch=training.batch,
        exploring=training.exploring,
    )
    like = [Replay(jnp.zeros((q, d)), jnp.zeros((q, arms))) for q, d in shapes]
    return jax.jit(learn).lower(jax.random.key(0), *like).compile()


def _selector(
    table: RewardTable, contexts: Contexts, policy: Policy, learned: Learned
) -> Selector | None:
    if not isinstance(policy, NeuralUcb):
        return None
    features = table.contexts.shape[1]
    params = learned.state.params
    return Selector(table.arms, features, (policy.width,), params, contexts.axes, table.encoder)
