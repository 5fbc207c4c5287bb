"""Checkpoints into the network of :mod:`jaxrag.models.decoder.network`, on one device or a mesh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.sharding import Mesh

from jaxrag.models.checkpoint.files import check_parameters, read_config, read_tensors
from jaxrag.models.decoder.cache import empty_cache
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.sharding import parameter_sharding

_BUFFERS = r".*\.rotary_emb\.inv_freq"


def load_decoder(
    path: Path, *, dtype: jnp.dtype, mesh: Mesh | None = None, stacked: bool = False
) -> tuple[Decoder, dict[str, Any]]:
    """A decoder and its parameters in ``dtype``, spread over ``mesh`` if one is given.

    ``stacked`` puts the layers' parameters into one array each, see
    `jaxrag.models.decoder.network.DecoderLayers`.

    Raises:
      InputError: if the checkpoint is of another kind, incomplete, or does not fit its config.
    """
    decoder = Decoder(read_decoder_config(read_config(path), source=path), dtype)
    tied = (r"lm_head\.weight",) if decoder.config.tied else ()  # some files hold the copy
    shapes = parameter_shapes(decoder)
    arrays = check_parameters(read_tensors(path), shapes, source=path, ignore=(_BUFFERS, *tied))
    placed = {}
    if stacked:
        decoder, arrays = decoder.clone(stacked=True), stack_layers(arrays)
    for name in list(arrays):
        array = arrays.pop(name)
        sharding = parameter_sharding(name, array.shape, mesh) if mesh else None
        placed[name] = jax.device_put(array.astype(dtype), sharding)
    return decoder, unflatten_dict(placed, sep=".")


def stack_layers(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters with those of all layers in one array, [l ...], under the name "stack"."""
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        layer = re.fullmatch(r"(model\.layers)\.(\d+)\.(.*)", name)
        if layer is None:
            found[name] = array
        else:
            parts = found.setdefault(f"{layer[1]}.stack.{layer[3]}", {})
            parts[int(layer[2])] = array
    for name, parts in found.items():
        if isinstance(parts, dict):
            found[name] = np.stack([parts[i] for i in range(len(parts))])
    return found


def parameter_shapes(decoder: Decoder) -> dict[str, tuple[int, ...]]:
    """Shape of each parameter, under its name in checkpoints."""
    params = jax.eval_shape(lambda: initialise(decoder, jax.random.key(0)))
    flat: dict[str, Any] = dict(flatten_dict(params, sep="."))
    return {name: leaf.shape for name, leaf in flat.items()}


def initialise(decoder: Decoder, key: jax.Array) -> dict[str, Any]:
    """Random parameters."""
    tokens, where = jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1, 1), bool)
    cache = empty_cache(decoder.config, 1, 1, decoder.dtype, stacked=decoder.stacked)
    variables: Any = decoder.init(
        key, tokens, tokens, where=where, cache=cache, method="everything"
    )
    return variables["params"]
