"""Loads checkpoints of decoders onto one device or a mesh, and writes them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict
from jax.sharding import Mesh

from jaxrag.models.cache import empty_cache
from jaxrag.models.checkpoint.files import (
    Tensors,
    check_parameters,
    read_config,
    read_tensors,
    write_checkpoint,
)
from jaxrag.models.checkpoint.stored import StoredTensor
from jaxrag.models.decoder.config import DecoderConfig, read_decoder_config
from jaxrag.models.decoder.families import FAMILIES
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.parameters import flatten, shapes, template, to_devices, to_numpy, unflatten
from jaxrag.models.quantisation import Quantization, check_quantization, quantise
from jaxrag.types import InputError

_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_BUFFERS = r".*\.rotary_emb\.inv_freq"


def load_decoder(
    path: Path,
    *,
    dtype: jnp.dtype,
    mesh: Mesh | None = None,
    stacked: bool = False,
    quantization: Quantization = "",
) -> tuple[Decoder, dict[str, Any]]:
    """A decoder and its parameters in ``dtype``, sharded over ``mesh`` if one is given.

    The host holds one parameter at a time, and of each the part that its own devices hold.
    ``stacked``: see `jaxrag.models.decoder.network.DecoderLayers`; ``quantization``: see
    `jaxrag.models.quantisation`. InputError if the checkpoint is of another model type, incomplete,
    or does not fit its config.
    """
    check_quantization(quantization)
    config = read_config(path)
    decoder = Decoder(read_decoder_config(config, source=path), dtype)
    tied = (r"lm_head\.weight",) if decoder.config.tied else ()  # some files hold the copy
    ignore = (_BUFFERS, *tied)
    tensors = read_tensors(path, layers=decoder.config.num_hidden_layers)
    if FAMILIES[config["model_type"]].fused:
        tensors = split_projections(tensors, decoder.config, source=path)
    expected = parameter_shapes(decoder)
    arrays = check_parameters(tensors, expected, source=path, ignore=ignore, read=False)
    if quantization:
        arrays = _quantised(arrays)
    if stacked:
        decoder, arrays = decoder.clone(stacked=True), group_layers(arrays)
    placed = to_devices(arrays, dtype, mesh)
    if quantization:
        return decoder, unflatten_dict(placed, sep=".")
    network: Any = decoder  # Flax makes it hashable
    return decoder, unflatten(placed, template(_initialise, network))


def _quantised(tensors: Mapping[str, StoredTensor]) -> dict[str, np.ndarray]:
    """Parameters, read one by one: of a matrix "x.weight" its integers, and "x.scale"."""
    arrays: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        array = tensor.read()
        if array.ndim == 2:
            array, arrays[f"{name.removesuffix('.weight')}.scale"] = quantise(array, name)
        arrays[name] = array
    return arrays


def save_decoder(directory: Path, config: Mapping[str, Any], params: Any) -> Path:
    """Writes a checkpoint that `load_decoder` and transformers read; ``config`` is its config.json.

    The decoder's layers are not stacked; InputError if its parameters are quantised.
    """
    if any(name.endswith(".scale") for name in flatten(params)):
        raise InputError(
            "Quantised parameters (quantization 'int8') can be neither trained nor written as a "
            "checkpoint: train with those of the checkpoint, and quantise the result when it is "
            "loaded."
        )
    tensors = to_numpy(params)
    if FAMILIES[config["model_type"]].fused:
        tensors = join_projections(tensors)
    return write_checkpoint(directory, config, tensors)


def split_projections(tensors: Tensors, config: DecoderConfig, *, source: object) -> Tensors:
    """The tensors with Phi-3's fused matrices split into those of other families.

    InputError if a fused matrix has another number of rows than ``config`` says.
    """
    groups, inner = config.num_key_value_heads * config.head_dim, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    sizes = {"qkv_proj": (queries, groups, groups), "gate_up_proj": (inner, inner)}
    parts: dict[str, StoredTensor] = {}
    for name in tensors:
        tensor = tensors.stored(name)
        owner, _, fused = name.removesuffix(".weight").rpartition(".")
        if fused not in _FUSED:
            parts[name] = tensor
            continue
        stops = [0, *itertools.accumulate(sizes[fused])]
        if (count := tensor.shape[0] if tensor.shape else 1) != stops[-1]:
            raise InputError(f"{source}: {name} has {count} rows, its config says {stops[-1]}.")
        for part, start, stop in zip(_FUSED[fused], stops, stops[1:], strict=False):
            parts[f"{owner}.{part}.weight"] = tensor.rows(start, stop)
    return Tensors(parts)


def join_projections(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of `split_projections`."""
    joined = dict(tensors)
    for fused, parts in _FUSED.items():
        for name in [name for name in tensors if name.endswith(f".{parts[0]}.weight")]:
            owner = name.removesuffix(f"{parts[0]}.weight")
            pieces = [joined.pop(f"{owner}{part}.weight") for part in parts]
            joined[f"{owner}{fused}.weight"] = np.concatenate(pieces)
    return joined


def group_layers(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray | list[np.ndarray]]:
    """Parameters with a layer's as a list over the layers, under the key "stack"."""
    grouped: dict[str, np.ndarray | list[np.ndarray]] = {}
    layers: dict[str, dict[int, np.ndarray]] = {}
    for name, array in arrays.items():
        layer = re.fullmatch(r"(model\.layers)\.(\d+)\.(.*)", name)
        if layer is None:
            grouped[name] = array
        else:
            layers.setdefault(f"{layer[1]}.stack.{layer[3]}", {})[int(layer[2])] = array
    return grouped | {name: [stack[i] for i in range(len(stack))] for name, stack in layers.items()}


def parameter_shapes(decoder: Decoder) -> dict[str, tuple[int, ...]]:
    """Shape of each parameter, by its name in checkpoints."""
    network: Any = decoder
    return shapes(template(_initialise, network))


def _initialise(decoder: Decoder) -> dict[str, Any]:
    return initialise(decoder, jax.random.key(0))


def initialise(decoder: Decoder, key: jax.Array) -> dict[str, Any]:
    """Random parameters."""
    tokens, where = jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1, 1), bool)
    cache = empty_cache(decoder.config, 1, 1, decoder.dtype, stacked=decoder.stacked)
    variables: Any = decoder.init(
        key, tokens, tokens, where=where, cache=cache, method="everything"
    )
    return variables["params"]
