"""Loads checkpoints of decoders onto one device or a mesh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrag.models.cache import empty_cache
from jaxrag.models.checkpoint.files import check_parameters, read_config, read_tensors
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.parameters import shapes, to_devices, unflatten

_BUFFERS = r".*\.rotary_emb\.inv_freq"


def load_decoder(
    path: Path, *, dtype: jnp.dtype, mesh: Mesh | None = None, stacked: bool = False
) -> tuple[Decoder, dict[str, Any]]:
    """A decoder and its parameters in ``dtype``, sharded over ``mesh`` if one is given.

    ``stacked`` stacks the layers' parameters, see `jaxrag.models.decoder.network.DecoderLayers`.

    Raises:
      InputError: the checkpoint is of another model type, incomplete, or does not fit its config.
    """
    decoder = Decoder(read_decoder_config(read_config(path), source=path), dtype)
    tied = (r"lm_head\.weight",) if decoder.config.tied else ()  # some files hold the copy
    ignore = (_BUFFERS, *tied)
    arrays = check_parameters(
        read_tensors(path), parameter_shapes(decoder), source=path, ignore=ignore
    )
    if stacked:
        decoder, arrays = decoder.clone(stacked=True), stack_layers(arrays)
    template = jax.eval_shape(lambda: initialise(decoder, jax.random.key(0)))
    return decoder, unflatten(to_devices(arrays, dtype, mesh), template)


def stack_layers(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parameters with each layer parameter stacked over layers, [l ...], under the key "stack"."""
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
    """Shape of each parameter, by its name in checkpoints."""
    return shapes(lambda: initialise(decoder, jax.random.key(0)))


def initialise(decoder: Decoder, key: jax.Array) -> dict[str, Any]:
    """Random parameters."""
    tokens, where = jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1, 1), bool)
    cache = empty_cache(decoder.config, 1, 1, decoder.dtype, stacked=decoder.stacked)
    variables: Any = decoder.init(
        key, tokens, tokens, where=where, cache=cache, method="everything"
    )
    return variables["params"]
