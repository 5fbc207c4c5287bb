"""Programs of the local engine at the sizes of the papers' models."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import unflatten_dict
from jax.sharding import PartitionSpec as P

from benchmarks.tpu.chips import Place, Slice
from benchmarks.tpu.program import Ideal, Program
from jaxrag.engines.local.prefill import Sizes
from jaxrag.models.cache import empty_cache, place
from jaxrag.models.decoder.checkpoint import initialise
from jaxrag.models.decoder.config import DecoderConfig, read_decoder_config
from jaxrag.models.decoder.decoding import (
    STEPS,
    DecodingLimits,
    DecodingRows,
    decode,
    extend,
    next_token,
    score,
)
from jaxrag.models.decoder.inspection import inspect
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.parameters import flatten
from jaxrag.models.quantisation import Quantization
from jaxrag.models.sampling import TokenSampling
from jaxrag.models.sharding import cache_sharding, parameter_sharding

_DTYPE = jnp.dtype(jnp.bfloat16)

CONFIGS: dict[str, dict[str, Any]] = {
    "Qwen2.5-7B": {
        "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "vocab_size": 152064, "max_position_embeddings": 32768, "rope_theta": 1e6,
    },
    "Llama-3-8B": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 128256, "max_position_embeddings": 8192, "rope_theta": 5e5,
    },
    "Gemma-2-9B": {
        "model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336,
        "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 256, "vocab_size": 256000, "max_position_embeddings": 8192,
        "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0, "sliding_window": 4096, "tie_word_embeddings": True,
        "hidden_activation": "gelu_pytorch_tanh",
    },
    "Llama-3-70B": {
        "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
        "vocab_size": 128256, "max_position_embeddings": 8192, "rope_theta": 5e5,
    },
}  # fmt: skip
"""Shapes as in the published config.json."""


def decoder(name: str, *, stacked: bool = True) -> Decoder:
    """A model in bfloat16; its layers stacked, as TPUs run it, or compiled one by one."""
    return Decoder(read_decoder_config(CONFIGS[name], source=name), _DTYPE, stacked=stacked)


def parameters(network: Decoder, where: Place, quantization: Quantization = "") -> Any:
    """Shapes and shardings of a decoder's parameters, as `load_decoder` places them."""
    template = jax.eval_shape(lambda: initialise(network, jax.random.key(0)))

    def one(name: str, shape: tuple[int, ...], dtype: Any = _DTYPE) -> jax.ShapeDtypeStruct:
        sharding = where.mesh and parameter_sharding(name, shape, where.mesh)
        return where.shaped(shape, dtype, sharding)

    found = {}
    for name, leaf in flatten(template).items():
        if quantization and leaf.ndim == 2 + (".stack." in name):
            found[name] = one(name, leaf.shape, jnp.int8)
            scale = f"{name.removesuffix('.weight')}.scale"
            found[scale] = one(scale, leaf.shape[:-1], jnp.float32)
        else:
            found[name] = one(name, leaf.shape)
    return unflatten_dict(found, sep=".")


def cache(network: Decoder, rows: int, slots: int, where: Place) -> Any:
    """Shapes and shardings of a cache, as `Prefill.empty` makes it."""
    config, stacked = network.config, network.stacked
    sharding = where.mesh and cache_sharding(config, rows, where.mesh, stacked=stacked)
    found = jax.eval_shape(lambda: empty_cache(config, rows, slots, _DTYPE, stacked=stacked))
    return jax.tree.map(lambda leaf: where.shaped(leaf.shape, leaf.dtype, sharding), found)


def _sampling(rows: int, where: Place) -> Any:
    each = where.array((rows,), jnp.uint32, P("data"))
    return TokenSampling(where.array((), jnp.float32), each, each)


def _decode(
    network: Decoder, rows: int, slots: int, quantization: Quantization, where: Place
) -> Any:
    each = where.array((rows,), jnp.int32, P("data"))
    state = DecodingRows(each, each, each, where.array((rows,), jnp.bool_, P("data")))
    one = where.array((), jnp.int32)
    ends = where.array((network.config.vocab_size,), jnp.bool_)
    return decode.trace(
        network,
        parameters(network, where, quantization),
        cache(network, rows, slots, where),
        state,
        DecodingLimits(each, one, one, ends),
        _sampling(rows, where),
    )


def _prefill(
    network: Decoder, rows: int, chunk: int, slots: int, quantization: Quantization, where: Place
) -> Any:
    return extend.trace(
        network,
        parameters(network, where, quantization),
        cache(network, rows, slots, where),
        where.array((rows, chunk), jnp.int32, P("data")),
        where.array((rows,), jnp.int32, P("data")),
    )


def _inspect(network: Decoder, rows: int, chunk: int, slots: int, where: Place) -> Any:
    return inspect.trace(
        network,
        parameters(network, where),
        cache(network, rows, slots, where),
        where.array((rows, chunk), jnp.int32, P("data")),
        where.array((rows,), jnp.int32, P("data")),
        where.array((), jnp.int32),
    )


def _score(network: Decoder, tokens: int, where: Place) -> Any:
    hidden = where.array((tokens, network.config.hidden_size), _DTYPE)
    ids = where.array((tokens,), jnp.int32)
    return score.trace(network, parameters(network, where), hidden, ids)


def _next_token(network: Decoder, rows: int, where: Place) -> Any:
    hidden = where.array((rows, network.config.hidden_size), _DTYPE, P("data"))
    each = where.array((rows,), jnp.int32, P("data"))
    arguments = hidden, each, _sampling(rows, where)
    return next_token.trace(network, parameters(network, where), *arguments)


def _place(network: Decoder, rows: int, few: int, slots: int, where: Place) -> Any:
    numbers = where.array((few,), jnp.int32)
    return place.trace(
        cache(network, rows, slots, where),
        cache(network, few, slots, where),
        numbers,
        numbers,
        where.array((), jnp.int32),
    )


def _sizes(config: DecoderConfig) -> tuple[float, float]:
    """Weights of the layers, and of an embedding table or output layer."""
    h, e, d = config.num_attention_heads, config.head_dim, config.hidden_size
    attention = 2 * d * e * (h + config.num_key_value_heads)
    layers = config.num_hidden_layers * (attention + 3 * d * config.intermediate_size)
    return float(layers), float(config.vocab_size * d)


def _cache_row(config: DecoderConfig) -> float:
    """Bytes of keys and values of a slot."""
    layers, g, e = config.cache_shape
    return 2.0 * layers * g * e * _DTYPE.itemsize


def _attention_flops(config: DecoderConfig, slots: int) -> float:
    """Operations of a token's attention to so many slots."""
    return 4.0 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * slots


def _bytes(quantization: Quantization) -> int:
    """Of a weight."""
    return 1 if quantization else _DTYPE.itemsize


def decode_ideal(
    config: DecoderConfig, rows: int, slots: int, quantization: Quantization = ""
) -> Ideal:
    """Weights and cache read once."""
    layers, table = _sizes(config)
    moved = _bytes(quantization) * (layers + table) + rows * slots * _cache_row(config)
    each = 2 * (layers + table) + _attention_flops(config, slots)
    return Ideal(moved, rows * each)


def prefill_ideal(
    config: DecoderConfig, rows: int, chunk: int, slots: int, quantization: Quantization = ""
) -> Ideal:
    """Weights and cache read once; every token attends to all slots."""
    layers, _ = _sizes(config)
    moved = _bytes(quantization) * layers + rows * slots * _cache_row(config)
    return Ideal(moved, rows * chunk * (2 * layers + _attention_flops(config, slots)))


def _name(model: str, quantization: Quantization, stacked: bool) -> str:
    return f"{model} {quantization}".strip() + ("" if stacked else ", layers apart")


def decoding(
    model: str,
    on: Slice,
    *,
    rows: int,
    slots: int,
    quantization: Quantization = "",
    stacked: bool = True,
) -> Program:
    """A step of all answers."""
    network, name = decoder(model, stacked=stacked), _name(model, quantization, stacked)
    return Program(
        f"{name}: decode {rows} x 1, {slots:,} slots",
        on,
        partial(_decode, network, rows, slots, quantization),
        decode_ideal(network.config, rows, slots, quantization),
        rows,
        "tokens",
        rounds=STEPS,
        parts=STEPS,
    )


def prefill(
    model: str,
    on: Slice,
    *,
    rows: int,
    chunk: int,
    slots: int,
    quantization: Quantization = "",
    stacked: bool = True,
) -> Program:
    """A chunk of each prompt."""
    network, name = decoder(model, stacked=stacked), _name(model, quantization, stacked)
    return Program(
        f"{name}: prefill {rows} x {chunk}, {slots:,} slots",
        on,
        partial(_prefill, network, rows, chunk, slots, quantization),
        prefill_ideal(network.config, rows, chunk, slots, quantization),
        rows * chunk,
        "tokens",
    )


def rest(model: str, on: Slice, *, rows: int, few: int, chunk: int, slots: int) -> list[Program]:
    """The engine's smaller programs."""
    network = decoder(model)
    config = network.config
    _, table = _sizes(config)
    moved = _DTYPE.itemsize * table
    inspected = prefill_ideal(config, few, chunk, slots)
    copied = Ideal(2 * few * slots * _cache_row(config), 0.0)

    def output(rows: int) -> Ideal:
        return Ideal(moved, 2 * table * rows)

    return [
        Program(
            f"{model}: score 64 tokens", on, partial(_score, network, 64), output(64), 64, "tokens"
        ),
        Program(
            f"{model}: first token of {few}",
            on,
            partial(_next_token, network, few),
            output(few),
            few,
            "tokens",
        ),
        Program(
            f"{model}: inspect {few} x {chunk}, {slots:,} slots",
            on,
            partial(_inspect, network, few, chunk, slots),
            inspected,
            few * chunk,
            "tokens",
        ),
        Program(
            f"{model}: {few} caches into {rows} rows, {slots:,} slots",
            on,
            partial(_place, network, rows, few, slots),
            copied,
            few,
            "rows",
        ),
    ]


V5E_8 = (Slice("v5e:2x4", 2, 4), Slice("v5e:2x4", 1, 8))


def usual(model: str, on: Slice) -> Sizes:
    """The sizes that the engine chooses where a chip holds nothing but its part of the weights."""
    config = decoder(model).config
    layers, table = _sizes(config)
    weights = _DTYPE.itemsize * (layers + (1 if config.tied else 2) * table)
    free = on.chips * on.chip.memory - on.data * weights
    return Sizes.fitting(int(free), int(_cache_row(config)))


def default_sizes(model: str, on: Slice) -> list[Program]:
    """Decoding and prefill at the sizes that the engine chooses, with 1,024 slots."""
    sizes = usual(model, on)
    reading: Any = {"rows": sizes.prefill_rows, "chunk": sizes.chunk}
    return [
        decoding(model, on, rows=sizes.decode_rows, slots=1024),
        prefill(model, on, slots=1024, **reading),
    ]


def programs() -> list[Program]:
    """All of them."""
    found = []
    for on in V5E_8:
        found.append(decoding("Qwen2.5-7B", on, rows=128, slots=1024))
        for slots in (1024, 4096):
            found.append(prefill("Qwen2.5-7B", on, rows=16, chunk=128, slots=slots))
    found.append(prefill("Qwen2.5-7B", V5E_8[1], rows=128, chunk=128, slots=1024))
    for on, rows in ((Slice("v5e:2x4"), 8), (Slice("v6e:2x4"), 64), (Slice("v5e:4x8", 4, 8), 512)):
        found.append(decoding("Qwen2.5-7B", on, rows=rows, slots=1024))
    found.append(prefill("Qwen2.5-7B", Slice("v5e:2x4"), rows=8, chunk=128, slots=1024))
    one: Any = {"on": Slice("v5e:2x4"), "slots": 1024, "quantization": "int8"}
    found.append(decoding("Qwen2.5-7B", rows=64, **one))
    found.append(prefill("Qwen2.5-7B", rows=16, chunk=128, **one))
    found.append(decoding("Llama-3-70B", Slice("v5e:4x8", 2, 16), rows=64, slots=1024))
    found.append(prefill("Llama-3-70B", Slice("v5e:4x8", 2, 16), rows=16, chunk=128, slots=1024))
    found += rest("Qwen2.5-7B", V5E_8[0], rows=128, few=16, chunk=128, slots=1024)
    for model in ("Llama-3-8B", "Gemma-2-9B"):
        found.append(decoding(model, V5E_8[1], rows=128, slots=1024))
        found.append(prefill(model, V5E_8[1], rows=16, chunk=128, slots=1024))
        found += rest(model, V5E_8[1], rows=128, few=16, chunk=128, slots=1024)
    for data in (1, 2, 4, 8):
        chosen = default_sizes("Qwen2.5-7B", Slice("v5e:2x4", data, 8 // data))
        found += [program for program in chosen if program.key not in {one.key for one in found}]
    for on in (Slice("v6e:2x4", 1, 8), Slice("v5p:2x2x1", 1, 4)):
        found.append(decoding("Qwen2.5-7B", on, rows=128, slots=1024))
        found.append(decoding("Llama-3-70B", on, rows=64, slots=1024))
        found.append(prefill("Llama-3-70B", on, rows=16, chunk=128, slots=1024))
    return found
