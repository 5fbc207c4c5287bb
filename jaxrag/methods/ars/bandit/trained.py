"""A trained bandit: from a question's embedding to K, and its checkpoint.

K = pi(x) of ARS-RAG (docs/methods, "ARS-RAG: algorithm", eqs 4-5): the arm whose network
predicts the highest reward, without exploration. A checkpoint is safetensors and a config.json.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxrag.functional.bandits.networks import Network, Params, mlp
from jaxrag.models.checkpoint.files import (
    check_parameters,
    read_json,
    read_tensors,
    replace_directory,
    write_checkpoint,
)
from jaxrag.types import InputError

_TYPES = ("ars-bandit", "ars-selector")  # the second is of checkpoints before the renaming
_AXES = "axes"
_SIZES = ("arms", "features", "dimensions")


class TrainedBandit(NamedTuple):
    """The networks of a bandit, one per arm, with their sizes and provenance.

    Attributes:
      arms: the highest K.
      features: d, the length of an embedding.
      axes: embeddings are projected onto these first; None keeps them as they are.
      encoder: identity of the encoder of the questions.
      source: rewriter, order, search and reader of its rewards; empty in old checkpoints.
      shared: whether one network serves all arms, as in Zhou et al.'s public code.
    """

    arms: int
    features: int
    hidden: tuple[int, ...]
    params: Params
    axes: Float[Array, "d r"] | None
    encoder: Any
    source: Mapping[str, Any]
    shared: bool = False

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines the choices."""
        leaves = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(self.params)]
        if self.axes is not None:
            leaves.append(np.asarray(self.axes, np.float32))
        weights = hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()
        shape = {"arms": self.arms, "features": self.features, "hidden": list(self.hidden)}
        if self.shared:
            shape["shared"] = True
        return json.dumps({"bandit": {**shape, "weights": weights}}, sort_keys=True)

    def choose(self, contexts: Float[np.ndarray, "q d"]) -> Int[np.ndarray, " q"]:
        """K of each question, from 1, by its own embedding alone; InputError for another length."""
        if contexts.ndim != 2 or contexts.shape[1] != self.features:
            raise InputError(
                f"Contexts have shape {contexts.shape}; the bandit takes [q, {self.features}], "
                "embeddings of the encoder that it was trained with."
            )
        shape = {"arms": self.arms, "hidden": self.hidden, "shared": self.shared}
        return 1 + np.asarray(best_arms(self.params, self.axes, contexts, **shape))

    def count(self, context: Float[np.ndarray, " d"], n: int) -> int:
        """K of a question with ``n`` rewrites; InputError if it was trained for another number."""
        if self.arms != n:
            raise InputError(
                f"The bandit was trained for {self.arms} rewrites, and the question has {n}: set "
                f"method.rewriter.n={self.arms}, or train another bandit."
            )
        return int(self.choose(np.asarray(context)[None])[0])


@functools.partial(jax.jit, static_argnames=("arms", "hidden", "shared"))
def best_arms(
    params: Params,
    axes: Float[Array, "d r"] | None,
    contexts: Float[Array, "q d"],
    *,
    arms: int,
    hidden: tuple[int, ...],
    shared: bool,
) -> Int[Array, " q"]:
    """The arm with the highest predicted reward for each context, from 0; see `TrainedBandit`."""
    size = contexts.shape[1] if axes is None else axes.shape[1]
    network = _network(size, arms, hidden, shared)

    def one(x: Float[Array, " d"]) -> Int[Array, ""]:
        return jnp.argmax(network.rewards(params, normalized(x[None], axes)[0]))

    # Row by row: a product over all rows may round a row differently beside other rows.
    return jax.lax.map(one, contexts)


def _network(d: int, arms: int, hidden: tuple[int, ...], shared: bool) -> Network:
    return mlp(d, arms, hidden=hidden, shared=shared, bias=shared)


def principal_axes(contexts: Float[np.ndarray, "q d"], count: int) -> Float[np.ndarray, "d r"]:
    """The ``count`` leading singular vectors of the contexts.

    The mean is not subtracted: networks without biases need the direction common to all contexts.
    InputError where ``count`` exceeds the number of contexts or of features.
    """
    if not 1 <= count <= min(contexts.shape):
        raise InputError(
            f"{count} dimensions are requested of {len(contexts)} contexts with "
            f"{contexts.shape[1]} features; at most "
            f"{min(contexts.shape)} are possible; 0 does not project."
        )
    _, _, right = np.linalg.svd(contexts.astype(np.float64), full_matrices=False)
    signs = np.sign(right[np.arange(count), np.abs(right[:count]).argmax(1)])
    return np.ascontiguousarray((right[:count] * signs[:, None]).T, np.float32)


def normalized(
    contexts: Float[Array, "q d"], axes: Float[Array, "d r"] | None
) -> Float[Array, "q r"]:
    """Contexts projected onto ``axes``, then scaled to length 1; zeros stay zeros.

    NeuralUCB assumes contexts of length 1 (Zhou et al. 2020, section 4).
    """
    if axes is not None:
        contexts = jnp.matmul(contexts, axes, precision=jax.lax.Precision.HIGHEST)
    length = jnp.sqrt(jnp.sum(jnp.square(contexts), axis=1, keepdims=True))
    return contexts / jnp.where(length > 0, length, 1.0)


def _stored(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape in a checkpoint: a single number, the bias of a shared network, is a vector of one."""
    return shape or (1,)


def write_bandit(
    directory: str | Path, bandit: TrainedBandit, *, trained: Mapping[str, Any] | None = None
) -> Path:
    """Writes a checkpoint atomically; replaces ``directory``.

    ``trained`` says how it was trained, in plain JSON, for human readers. InputError where it
    cannot be written, for example because the disk is full.
    """
    config = {
        "model_type": _TYPES[0],
        "arms": bandit.arms,
        "features": bandit.features,
        "hidden": list(bandit.hidden),
        "shared": bandit.shared,
        "dimensions": 0 if bandit.axes is None else bandit.axes.shape[1],
        "encoder": bandit.encoder,
        "source": dict(bandit.source),
        "trained": dict(trained or {}),
    }
    tensors = {
        f"layers.{at}": np.asarray(leaf, np.float32).reshape(_stored(leaf.shape))
        for at, leaf in enumerate(jax.tree.leaves(bandit.params))
    }
    if bandit.axes is not None:
        tensors[_AXES] = np.asarray(bandit.axes, np.float32)
    with replace_directory(directory) as partial:
        write_checkpoint(partial, config, tensors)
    return Path(directory).absolute()


def load_bandit(path: str | Path, *, encoder: Any = None) -> TrainedBandit:
    """Reads a checkpoint of `write_bandit`.

    ``encoder`` is the identity of the encoder that will embed the questions; None does not check.
    InputError if there is no bandit, it is damaged or inconsistent with its config, or it was
    trained on embeddings of another encoder.
    """
    path = Path(path)
    config = read_json(path / "config.json")
    if config.get("model_type") not in _TYPES:
        raise InputError(
            f"{path} is not a bandit: its config.json has model_type "
            f"{config.get('model_type')!r}, not {_TYPES[0]!r}."
        )
    hidden = config.get("hidden")
    if (
        not isinstance(hidden, list)
        or not all(isinstance(width, int) for width in hidden)
        or "encoder" not in config
        or any(not isinstance(config.get(name), int) for name in _SIZES)
    ):
        raise InputError(
            f"{path / 'config.json'} lacks arms, features, dimensions, hidden or encoder of a "
            "bandit: it is incomplete."
        )
    if encoder is not None and config["encoder"] != encoder:
        raise InputError(
            f"{path} is a bandit for encoder {config['encoder']!r}, but here it is {encoder!r}; "
            "use a bandit that was trained with this encoder, or train one from its reward table."
        )
    arms, features, dimensions = (config[name] for name in _SIZES)
    shared = bool(config.get("shared", False))
    network = _network(dimensions or features, arms, tuple(hidden), shared)
    leaves, structure = jax.tree.flatten(jax.eval_shape(network.init, jax.random.key(0)))
    shapes = {f"layers.{at}": _stored(leaf.shape) for at, leaf in enumerate(leaves)}
    if dimensions:
        shapes[_AXES] = (features, dimensions)
    arrays = check_parameters(read_tensors(path), shapes, source=path)
    if bad := [name for name, array in arrays.items() if not np.isfinite(array).all()]:
        raise InputError(f"{path}: {', '.join(bad)} are not all finite numbers; train it again.")
    layers = [
        jnp.asarray(arrays[f"layers.{at}"]).reshape(leaf.shape) for at, leaf in enumerate(leaves)
    ]
    params = jax.tree.unflatten(structure, layers)
    axes = jnp.asarray(arrays[_AXES]) if dimensions else None
    source = config.get("source", {})
    return TrainedBandit(
        arms, features, tuple(hidden), params, axes, config["encoder"], source, shared
    )
