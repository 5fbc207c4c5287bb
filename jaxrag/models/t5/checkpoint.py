"""Checkpoints of T5: read onto one device or a mesh, made at random, and written."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from transformers import PreTrainedTokenizerFast

from jaxrag.models.checkpoint.files import (
    check_parameters,
    read_config,
    read_tensors,
    write_checkpoint,
)
from jaxrag.models.sharding import parameter_sharding
from jaxrag.models.t5.config import T5Config, read_t5_config, t5_json
from jaxrag.models.t5.network import T5
from jaxrag.types import InputError

RULES: tuple[tuple[str, P], ...] = (
    (r".*\.(q|k|v|wi|wi_0|wi_1)\.weight", P("model", None)),
    (r".*\.(o|wo)\.weight", P(None, "model")),
    (r".*\.relative_attention_bias\.weight", P(None, "model")),
    (r"(shared|lm_head)\.weight", P("model", None)),
    (r".*", P()),
)
"""How parameters lie on a mesh, see `jaxrag.models.sharding`."""

_EMBEDDING, _HEAD = "shared.weight", "lm_head.weight"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# of the first release, which made but never used it
_UNUSED = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"


def load_t5(path: Path, *, dtype: jnp.dtype, mesh: Mesh | None = None) -> tuple[T5, dict[str, Any]]:
    """A T5 and its parameters in ``dtype``, spread over ``mesh`` if one is given.

    An output layer that equals the embedding table is taken as tied, one that differs as the
    model's own, whatever the config says.

    Raises:
      InputError: if the checkpoint is of another kind, incomplete, or does not fit its config; or
        for a dtype that T5 does not compute in.
    """
    config, tensors = read_t5_config(read_config(path), source=path), dict(read_tensors(path))
    embedding = _embedding(tensors, path)
    if config.tied and not _same(tensors.get(_HEAD, embedding), embedding):
        config = dataclasses.replace(config, tied=False)
    model = T5(config, dtype)
    ignore = (_UNUSED, *map(re.escape, _COPIES), *([re.escape(_HEAD)] if config.tied else []))
    arrays = check_parameters(tensors, parameter_shapes(config), source=path, ignore=ignore)
    placed = {}
    for name in list(arrays):
        array = arrays.pop(name)
        sharding = parameter_sharding(name, array.shape, mesh, rules=RULES) if mesh else None
        placed[name] = jax.device_put(array.astype(dtype), sharding)
    return model, unflatten_dict(placed, sep=".")


def save_t5(
    directory: str | Path,
    config: T5Config,
    params: Mapping[str, Any],
    tokenizer: PreTrainedTokenizerFast | None = None,
    *,
    shards: int = 1,
) -> Path:
    """Writes a checkpoint that `load_t5` and Hugging Face read; weights keep their dtype."""
    flat: dict[str, Any] = dict(flatten_dict(params, sep="."))
    arrays = {name: np.asarray(leaf) for name, leaf in flat.items()}
    check_parameters(arrays, parameter_shapes(config), source="The tree of parameters")
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)
    return write_checkpoint(directory, t5_json(config), arrays, shards=shards)


def parameter_shapes(config: T5Config) -> dict[str, tuple[int, ...]]:
    """Shape of each parameter, under its name in checkpoints."""
    token, where = jax.ShapeDtypeStruct((1, 1), jnp.int32), jax.ShapeDtypeStruct((1, 1), jnp.bool_)
    made = jax.eval_shape(
        lambda token, where: T5(config).init(jax.random.key(0), token, where, token), token, where
    )
    flat: dict[str, Any] = dict(flatten_dict(made["params"], sep="."))
    return {name: leaf.shape for name, leaf in flat.items()}


def random_t5(config: T5Config, key: jax.Array, *, dtype: Any = jnp.float32) -> dict[str, Any]:
    """Parameters to begin training with, drawn as T5's were (Mesh TensorFlow's rules).

    Normal with the standard deviations of `initial_deviation`; norms are the factor throughout.
    """
    made = {}
    for i, (name, shape) in enumerate(sorted(parameter_shapes(config).items())):
        if "layer_norm" in name:
            made[name] = jnp.full(shape, config.initializer_factor, dtype)
        else:
            drawn = jax.random.normal(jax.random.fold_in(key, i), shape)
            made[name] = (drawn * initial_deviation(name, config)).astype(dtype)
    return unflatten_dict(made, sep=".")


def initial_deviation(name: str, config: T5Config) -> float:
    """Standard deviation of a matrix before training: the factor, by its inputs' number.

    Queries have d_kv^-1/2 besides, for the scaling that attention does without. A tied embedding
    table and a head of its own have the factor itself.
    """
    layer = name.split(".")[-2]
    inner = config.num_heads * config.d_kv
    inputs = {
        "shared": 1,
        "lm_head": 1,
        "q": config.d_model * config.d_kv,
        "o": inner,
        "wo": config.d_ff,
    }.get(layer, config.d_model)
    return config.initializer_factor * inputs**-0.5


def _embedding(tensors: dict[str, np.ndarray], path: Path) -> np.ndarray:
    """The embedding table; put under its name where the file has only a copy of it.

    Raises:
      InputError: the copies differ, or there is none.
    """
    found = [tensors[name] for name in (_EMBEDDING, *_COPIES) if name in tensors]
    if not found:
        raise InputError(f"{path} holds no embedding table: {_EMBEDDING} is missing.")
    if not all(_same(copy, found[0]) for copy in found):
        raise InputError(
            f"{path} has different embedding tables of encoder and decoder; a T5 has one."
        )
    return tensors.setdefault(_EMBEDDING, found[0])


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one is other or np.array_equal(one, other)
