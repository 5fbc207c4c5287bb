"""A training step over the pieces of a batch: gradient, optimiser, figures.

One device and eight end in the same bits (`jaxrag.training.pieces`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxrag.training import pieces


class State(NamedTuple):
    """What training changes."""

    params: dict[str, Any]
    optimiser: Any


class Step(NamedTuple):
    """The functions of one training step.

    Attributes:
      begin: parameters -> the state that training begins with, on all devices.
      update: (state, batch of NumPy arrays, number of the step) -> (state, figures); the state that
        it is given is used up.
    """

    begin: Callable[[dict[str, Any]], State]
    update: Callable[[State, Any, int], tuple[State, dict[str, Any]]]


def make_step(
    optimiser: optax.GradientTransformation,
    embed: pieces.Embed,
    loss: pieces.Loss,
    *,
    piece: int,
    mesh: Mesh,
    told: Callable[[Any], Mapping[str, Any]],
) -> Step:
    """A step whose figures are "loss", "norm" (of the gradient) and what is told of a batch.

    Args:
      optimiser: with its learning rate.
      embed, loss: as of `pieces.make_gradient`; a batch has ``step`` and ``place``, a line a row.
      piece: rows that go through the network at a time.
      mesh: as of `pieces.data_mesh`.
      told: figures of a batch.
    """
    gradient = pieces.make_gradient(embed, loss, mesh)

    @partial(jax.jit, donate_argnums=0)
    def change(state: State, slopes: dict[str, Any]) -> tuple[State, jax.Array]:
        updates, inner = optimiser.update(slopes, state.optimiser, state.params)
        params: Any = optax.apply_updates(state.params, updates)  # pyright: ignore
        return State(params, inner), optax.tree.norm(slopes)

    def begin(params: dict[str, Any]) -> State:
        return pieces.replicate(State(params, optimiser.init(params)), mesh)

    def update(state: State, batch: Any, number: int) -> tuple[State, dict[str, Any]]:
        pieces.check_batch(len(batch.place), piece, mesh)
        batch = batch._replace(step=np.full_like(batch.step, number))
        held = pieces.apart(state, mesh)
        found = gradient([one.params for one in held], pieces.place(batch, piece, mesh))
        changed = pieces.on_each(change, held, found.slopes)
        state = pieces.together([one for one, _ in changed], mesh, P())
        return state, {"loss": found.loss[0], "norm": changed[0][1], **told(batch)}

    return Step(begin, update)
