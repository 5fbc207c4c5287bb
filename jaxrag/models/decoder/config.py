"""Config of a decoder, read from config.json and checked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxrag.models.checkpoint.files import integer
from jaxrag.models.decoder.families import FAMILIES
from jaxrag.types import InputError


class Rope(NamedTuple):
    """Rotary position embedding (Su et al., 2021, RoFormer).

    Attributes:
      frequencies: radians per position, one for each pair of features.
      scale: factor of sin and cos.
    """

    frequencies: tuple[float, ...]
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Architecture of a decoder; hashable, hence a static argument of jitted functions.

    ``qkv_bias``, ``o_bias`` and ``mlp_bias`` say which projections have a bias, ``qk_norm`` whether
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

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Layers, key-value heads and features of a head, for `jaxrag.models.cache.empty_cache`."""
        return self.num_hidden_layers, self.num_key_value_heads, self.head_dim


def read_decoder_config(config: Mapping[str, Any], *, source: object) -> DecoderConfig:
    """The config of a Llama, Qwen2, Qwen2.5 or Qwen3 model from its Hugging Face config.json.

    Raises:
      InputError: naming ``source``; for another model type, a missing field or an unsupported
        setting.
    """
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        raise InputError(
            f"{source}: model_type is {config.get('model_type')!r}; a decoder is one of "
            f"{', '.join(FAMILIES)}."
        )
    _refuse_unsupported(config, source)
    heads = integer(config, "num_attention_heads", source)
    hidden = integer(config, "hidden_size", source)
    head_dim = config.get("head_dim") or family.head_dim or hidden // heads
    bias = bool(config.get("attention_bias", False)) and not family.qkv_bias
    result = DecoderConfig(
        vocab_size=integer(config, "vocab_size", source),
        hidden_size=hidden,
        intermediate_size=integer(config, "intermediate_size", source),
        num_hidden_layers=integer(config, "num_hidden_layers", source),
        num_attention_heads=heads,
        num_key_value_heads=config.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        rms_norm_eps=config.get("rms_norm_eps", 1e-6),
        max_position_embeddings=integer(config, "max_position_embeddings", source),
        rope=_read_rope(config, head_dim, source=source),
        qkv_bias=family.qkv_bias or bias,
        o_bias=bias,
        mlp_bias=family.mlp_bias and bool(config.get("mlp_bias", False)),
        qk_norm=family.qk_norm,
        tied=bool(config.get("tie_word_embeddings", False)),
    )
    if heads % result.num_key_value_heads:
        raise InputError(
            f"{source}: num_attention_heads {heads} is not a multiple of num_key_value_heads "
            f"{result.num_key_value_heads}."
        )
    if head_dim % 2:
        raise InputError(f"{source}: head_dim is {head_dim}; it must be even for rotary positions.")
    return result


def _refuse_unsupported(config: Mapping[str, Any], source: object) -> None:
    if config.get("hidden_act", "silu") != "silu":
        raise InputError(f"{source}: hidden_act is {config['hidden_act']!r}; allowed: 'silu'.")
    sliding = config.get("use_sliding_window") and config.get("sliding_window")
    if sliding or "sliding_attention" in (config.get("layer_types") or ()):
        raise InputError(
            f"{source}: sliding-window attention is not supported. It makes no difference for "
            "prompts shorter than the window: for these, set use_sliding_window to false, remove "
            "layer_types, and lower max_position_embeddings to the window."
        )
    if config.get("quantization_config"):
        raise InputError(
            f"{source}: quantised weights ({config['quantization_config'].get('quant_method')}) "
            "are not supported; use the float16 or bfloat16 checkpoint, or a GGUF file."
        )


def _read_rope(config: Mapping[str, Any], head_dim: int, *, source: object) -> Rope:
    """The frequencies that a Hugging Face config describes.

    Two forms are read: ``rope_theta`` with ``rope_scaling``, and ``rope_parameters``, which holds
    both (transformers 5).

    Raises:
      InputError: naming ``source``; for an unknown ``rope_type`` or a missing setting.
    """
    # where a config has both, rope_scaling takes precedence in transformers, too
    settings = {**(config.get("rope_parameters") or {}), **(config.get("rope_scaling") or {})}
    kind = settings.get("rope_type", settings.get("type", "default"))
    theta = settings.get("rope_theta", config.get("rope_theta") or 10000.0)
    if settings.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) != 1.0:
        raise InputError(f"{source}: partial_rotary_factor other than 1 is not supported.")
    plain = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    if kind == "default":
        return Rope(_floats(plain))
    if kind not in _SCALINGS:
        allowed = ", ".join(["default", *_SCALINGS])
        raise InputError(f"{source}: rope_type is {kind!r}; allowed: {allowed}.")
    original = config.get("original_max_position_embeddings", config.get("max_position_embeddings"))
    settings.setdefault("original_max_position_embeddings", original)
    try:
        return _SCALINGS[kind](plain, theta, settings)
    except (KeyError, TypeError) as error:
        raise InputError(f"{source}: rope scaling {kind!r} lacks the setting {error}.") from error


def _linear(plain: np.ndarray, theta: float, settings: Mapping[str, Any]) -> Rope:
    """Position interpolation, Chen et al. (2023): all frequencies divided by a factor."""
    return Rope(_floats(plain / settings["factor"]))


def _llama3(plain: np.ndarray, theta: float, settings: Mapping[str, Any]) -> Rope:
    """Llama 3.1: low frequencies are divided by a factor, high ones kept, the others interpolated.

    Low and high refer to the number of turns within the original context.
    """
    turns = settings["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return Rope(_floats(plain * kept + plain / settings["factor"] * (1 - kept)))


def _yarn(plain: np.ndarray, theta: float, settings: Mapping[str, Any]) -> Rope:
    """YaRN, Peng et al. (2023): low frequencies are divided by a factor; attention is scaled."""
    factor, original = settings["factor"], settings["original_max_position_embeddings"]

    def feature(turns: float) -> float:
        """The (fractional) feature pair that makes ``turns`` turns in the original context."""
        return len(plain) * math.log(original / (turns * 2 * math.pi)) / math.log(theta)

    low = feature(settings.get("beta_fast") or 32)
    high = feature(settings.get("beta_slow") or 1)
    if settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * len(plain) - 1)
    slowed = np.clip((np.arange(len(plain)) - low) / max(high - low, 0.001), 0, 1)
    return Rope(
        _floats(plain / factor * slowed + plain * (1 - slowed)), _yarn_scale(factor, settings)
    )


def _yarn_scale(factor: float, settings: Mapping[str, Any]) -> float:
    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    given = settings.get("attention_factor")
    if given is not None:
        return float(given)
    if settings.get("mscale") and settings.get("mscale_all_dim"):
        return scale(settings["mscale"]) / scale(settings["mscale_all_dim"])
    return scale(1.0)


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(map(float, values))


_SCALINGS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn}
