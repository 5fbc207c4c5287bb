"""What a decoder's config.json says, checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxrag.models.decoder.rope import Rope, read_rope
from jaxrag.types import InputError

FAMILIES = ("llama", "qwen2", "qwen3")


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """The shape of a decoder; hashable, so that programs can be compiled for it.

    ``qkv_bias``, ``o_bias`` and ``mlp_bias`` tell which projections add a bias, ``qk_norm`` whether
    queries and keys are normalised per head (Qwen3), ``tied`` whether the output layer is the
    embedding table.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope: Rope
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied: bool


def read_decoder_config(config: Mapping[str, Any], *, source: object) -> DecoderConfig:
    """The settings in a Hugging Face config.json of a Llama, Qwen2, Qwen2.5 or Qwen3 model.

    Raises:
      InputError: naming ``source``, for another kind of model, a lacking field, or a setting that
        this decoder does not have.
    """
    family = config.get("model_type")
    if family not in FAMILIES:
        raise InputError(
            f"{source}: model_type is {family!r}; a decoder is one of {', '.join(FAMILIES)}."
        )
    _refuse_what_is_not_built(config, source)
    heads = _field(config, "num_attention_heads", source)
    hidden = _field(config, "hidden_size", source)
    head_dim = config.get("head_dim") or (128 if family == "qwen3" else hidden // heads)
    bias = bool(config.get("attention_bias", False)) and family != "qwen2"
    result = DecoderConfig(
        vocab_size=_field(config, "vocab_size", source),
        hidden_size=hidden,
        intermediate_size=_field(config, "intermediate_size", source),
        num_hidden_layers=_field(config, "num_hidden_layers", source),
        num_attention_heads=heads,
        num_key_value_heads=config.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        rms_norm_eps=config.get("rms_norm_eps", 1e-6),
        max_position_embeddings=_field(config, "max_position_embeddings", source),
        rope=read_rope(config, head_dim, source=source),
        qkv_bias=family == "qwen2" or bias,
        o_bias=bias,
        mlp_bias=family == "llama" and bool(config.get("mlp_bias", False)),
        qk_norm=family == "qwen3",
        tied=bool(config.get("tie_word_embeddings", False)),
    )
    if heads % result.num_key_value_heads:
        raise InputError(
            f"{source}: num_attention_heads {heads} is no multiple of num_key_value_heads "
            f"{result.num_key_value_heads}."
        )
    if head_dim % 2:
        raise InputError(f"{source}: head_dim is {head_dim}; rotation wants it even.")
    return result


def _field(config: Mapping[str, Any], name: str, source: object) -> int:
    value = config.get(name)
    if not isinstance(value, int) or value < 1:
        raise InputError(f"{source}: {name} is {value!r}; a positive integer is wanted.")
    return value


def _refuse_what_is_not_built(config: Mapping[str, Any], source: object) -> None:
    if config.get("hidden_act", "silu") != "silu":
        raise InputError(f"{source}: hidden_act is {config['hidden_act']!r}; allowed: 'silu'.")
    sliding = config.get("use_sliding_window") and config.get("sliding_window")
    if sliding or "sliding_attention" in (config.get("layer_types") or ()):
        raise InputError(
            f"{source}: sliding-window attention is not built. For prompts shorter than the "
            "window it changes nothing: set use_sliding_window to false, remove layer_types, and "
            "lower max_position_embeddings to the window."
        )
    if config.get("quantization_config"):
        raise InputError(
            f"{source}: quantised weights ({config['quantization_config'].get('quant_method')}) "
            "are not read; take the float16 or bfloat16 checkpoint, or a GGUF file."
        )
