"""A trained selector: from a question's embedding to how many rewrites to keep.

K = pi(x) of ARS-RAG (docs/methods.md, "ARS-RAG: algorithm", eqs 4-5): the arm whose network
promises the highest reward, without any exploration.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxrag.functional.bandits.networks import Params, mlp
from jaxrag.types import InputError


class Selector(NamedTuple):
    """What chooses, as data.

    Attributes:
      arms: the highest K.
      features: d, entries of an embedding.
      hidden: units of the networks' hidden layers.
      params: of the networks, one an arm.
      axes: embeddings are projected onto these first; None leaves them as they are.
      encoder: identity of what must have embedded the questions.
    """

    arms: int
    features: int
    hidden: tuple[int, ...]
    params: Params
    axes: Float[Array, "d r"] | None
    encoder: Any

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines the choices."""
        leaves = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(self.params)]
        if self.axes is not None:
            leaves.append(np.asarray(self.axes, np.float32))
        weights = hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()
        shape = {"arms": self.arms, "features": self.features, "hidden": list(self.hidden)}
        return json.dumps({"selector": {**shape, "weights": weights}}, sort_keys=True)

    def choose(self, contexts: Float[np.ndarray, "q d"]) -> Int[np.ndarray, " q"]:
        """K of each question, from 1; that of a question depends on its own embedding alone.

        Raises:
          InputError: the embeddings have another length than the selector was trained on.
        """
        if contexts.ndim != 2 or contexts.shape[1] != self.features:
            raise InputError(
                f"Contexts have shape {contexts.shape}; the selector takes [q, {self.features}], "
                "embeddings of the encoder that it was trained with."
            )
        size = self.features if self.axes is None else self.axes.shape[1]
        network = mlp(size, self.arms, hidden=self.hidden)

        def one(x: Float[Array, " d"]) -> Int[Array, ""]:
            return jnp.argmax(network.rewards(self.params, prepared(x[None], self.axes)[0]))

        # Row by row, since a product over all rows may round one of them by its neighbours.
        return 1 + np.asarray(jax.jit(lambda rows: jax.lax.map(one, rows))(contexts))


def principal_axes(contexts: Float[np.ndarray, "q d"], count: int) -> Float[np.ndarray, "d r"]:
    """The ``count`` directions that hold most of the contexts: their leading singular vectors.

    The mean is not taken off: networks without biases need the direction that all contexts share.

    Raises:
      InputError: there are fewer contexts or features than directions wanted.
    """
    if not 1 <= count <= min(contexts.shape):
        raise InputError(
            f"{count} dimensions are wanted of {len(contexts)} contexts with {contexts.shape[1]} "
            f"features; there are at most {min(contexts.shape)}; 0 keeps the contexts whole."
        )
    _, _, right = np.linalg.svd(contexts.astype(np.float64), full_matrices=False)
    signs = np.sign(right[np.arange(count), np.abs(right[:count]).argmax(1)])
    return np.ascontiguousarray((right[:count] * signs[:, None]).T, np.float32)


def prepared(
    contexts: Float[Array, "q d"], axes: Float[Array, "d r"] | None
) -> Float[Array, "q r"]:
    """Contexts as the networks take them: projected onto ``axes``, then of length 1.

    NeuralUCB supposes contexts of length 1 (Zhou et al. 2020, section 4); a context of zeros stays.
    """
    if axes is not None:
        contexts = jnp.matmul(contexts, axes, precision=jax.lax.Precision.HIGHEST)
    length = jnp.sqrt(jnp.sum(jnp.square(contexts), axis=1, keepdims=True))
    return contexts / jnp.where(length > 0, length, 1.0)
