"""Loads, initialises and writes checkpoints of T5."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxrag.models.checkpoint.files import (
    check_parameters,
    read_config,
    read_tensors,
    write_checkpoint,
)
from jaxrag.models.parameters import flatten, shapes, template, to_devices, unflatten
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
"""Sharding of parameters over a mesh, see `jaxrag.models.sharding`."""

_EMBEDDING, _HEAD = "shared.weight", "lm_head.weight"
_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
# an unused parameter of T5's first release
_UNUSED = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"


def load_t5(path: Path, *, dtype: jnp.dtype, mesh: Mesh | None = None) -> tuple[T5, dict[str, Any]]:
    """A T5 and its parameters in ``dtype``, sharded over ``mesh`` if one is given.

    The output layer is tied if it equals the embedding table, whatever the config says. InputError
    if the checkpoint is of another model type, incomplete, or does not fit its config.
    """
    config = read_t5_config(read_config(path), source=path)
    tensors = dict(read_tensors(path, layers=config.num_layers))
    embedding = _embedding(tensors, path)
    if config.tied and not _same(tensors.get(_HEAD, embedding), embedding):
        config = dataclasses.replace(config, tied=False)
    model = T5(config, dtype)
    ignore = (_UNUSED, *map(re.escape, _COPIES), *([re.escape(_HEAD)] if config.tied else []))
    arrays = check_parameters(tensors, parameter_shapes(config), source=path, ignore=ignore)
    placed = to_devices(arrays, dtype, mesh, rules=RULES)
    return model, unflatten(placed, template(_initialise, config))


def save_t5(directory: str | Path, config: T5Config, params: Mapping[str, Any]) -> Path:
    """Writes a checkpoint for `load_t5` and Hugging Face; weights keep their dtype."""
    arrays = {name: np.asarray(leaf) for name, leaf in flatten(params).items()}
    check_parameters(arrays, parameter_shapes(config), source="The tree of parameters")
    return write_checkpoint(directory, t5_json(config), arrays)


def parameter_shapes(config: T5Config) -> dict[str, tuple[int, ...]]:
    """Shape of each parameter, by its name in checkpoints."""
    return shapes(template(_initialise, config))


def _initialise(config: T5Config) -> Any:
    token = jnp.zeros((1, 1), jnp.int32)
    return T5(config).init(jax.random.key(0), token, token == 0, token)["params"]


def random_t5(config: T5Config, key: jax.Array) -> dict[str, Any]:
    """Initial parameters of a training by T5's own rules (Mesh TensorFlow)."""
    arrays = {}
    for i, (name, shape) in enumerate(sorted(parameter_shapes(config).items())):
        if "layer_norm" in name:
            arrays[name] = jnp.full(shape, config.initializer_factor, jnp.float32)
        else:
            drawn = jax.random.normal(jax.random.fold_in(key, i), shape)
            arrays[name] = drawn * initial_deviation(name, config)
    return unflatten(arrays, template(_initialise, config))


def initial_deviation(name: str, config: T5Config) -> float:
    """Initial standard deviation of a matrix: initializer_factor / sqrt(inputs).

    That of queries is also divided by sqrt(d_kv), in place of attention's scaling. For the
    embedding table and a separate output layer it is the factor itself.
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
    """The embedding table, added to ``tensors`` from its copies; InputError if those differ."""
    tables = [tensors[name] for name in (_EMBEDDING, *_COPIES) if name in tensors]
    if not tables:
        raise InputError(f"{path} has no embedding table: {_EMBEDDING} is missing.")
    if not all(_same(copy, tables[0]) for copy in tables):
        raise InputError(
            f"{path} has different embedding tables for encoder and decoder; a T5 shares one."
        )
    return tensors.setdefault(_EMBEDDING, tables[0])


def _same(first: np.ndarray, other: np.ndarray) -> bool:
    return first is other or np.array_equal(first, other)
