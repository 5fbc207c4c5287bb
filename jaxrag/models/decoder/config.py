"""Config of a decoder, read from config.json and checked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxrag.models.checkpoint.files import integer
from jaxrag.models.decoder.families import FAMILIES, Family
from jaxrag.models.layers import ACTIVATIONS
from jaxrag.types import InputError


class Rope(NamedTuple):
    """Rotary position embedding (Su et al., 2021, RoFormer).

    Attributes:
      frequencies: radians per position, one for each pair of features; where there are fewer pairs
        than a head has, its last features are not rotated.
      scale: factor of sin and cos.
    """

    frequencies: tuple[float, ...]
    scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Architecture of a decoder; hashable, hence a static argument of jitted functions.

    Attributes:
      rope: rotation of queries and keys.
      long_rope: rotation of texts of more than ``short_length`` tokens; None where it is the same.
      qkv_bias, o_bias, mlp_bias: which projections have a bias.
      qk_norm: whether queries and keys are normalised per head (Qwen3).
      tied: whether the output layer is the embedding table.
      activation: of the gate, a name of `jaxrag.models.layers.ACTIVATIONS`.
      windows: for each layer, the number of last positions that a token attends to, its own
        included; 0 means all. Empty if no layer has a window.
      query_scale: factor of the inner products of queries and keys.
      score_cap, logit_cap: soft caps c tanh(x / c) of these scores and of the logits; 0 means none.
      embedding_scale: factor of the embeddings.
      norm_offset: the norms multiply by weight + offset.
      post_norms: whether the outputs of attention and MLP are normalised, too.
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
    activation: str
    windows: tuple[int, ...]
    query_scale: float
    score_cap: float = 0.0
    logit_cap: float = 0.0
    embedding_scale: float = 1.0
    norm_offset: float = 0.0
    post_norms: bool = False
    long_rope: Rope | None = None
    short_length: int = 0

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Layers, key-value heads and features of a head, for `jaxrag.models.cache.empty_cache`."""
        return self.num_hidden_layers, self.num_key_value_heads, self.head_dim

    def is_long(self, length: int) -> bool:
        """Whether a text of ``length`` tokens is rotated by ``long_rope``, from its first token."""
        return self.long_rope is not None and length > self.short_length

    def for_long_texts(self) -> DecoderConfig:
        """The config with ``long_rope`` as its only rotation."""
        assert self.long_rope is not None, "the rotation does not depend on the length"
        return dataclasses.replace(self, rope=self.long_rope, long_rope=None, short_length=0)


def read_decoder_config(config: Mapping[str, Any], *, source: object) -> DecoderConfig:
    """The config of a model of `FAMILIES` from its Hugging Face config.json.

    Fields that the file leaves out have the values of transformers.

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
    config = {**family.defaults, **config}
    _refuse_unsupported(config, source)
    heads, hidden = (integer(config, f, source) for f in ("num_attention_heads", "hidden_size"))
    groups, head_dim = config.get("num_key_value_heads") or heads, config.get("head_dim")
    head_dim = head_dim or hidden // heads
    if heads % groups:
        raise InputError(
            f"{source}: num_attention_heads {heads} is not a multiple of num_key_value_heads "
            f"{groups}."
        )
    bias = family.attention_bias and bool(config.get("attention_bias", False))
    rope, long_rope, short_length = _read_rope(config, family, head_dim, source=source)
    result = DecoderConfig(
        vocab_size=integer(config, "vocab_size", source),
        hidden_size=hidden,
        intermediate_size=integer(config, "intermediate_size", source),
        num_hidden_layers=integer(config, "num_hidden_layers", source),
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=head_dim,
        rms_norm_eps=config.get("rms_norm_eps", 1e-6),
        max_position_embeddings=integer(config, "max_position_embeddings", source),
        rope=rope,
        qkv_bias=family.qkv_bias or bias,
        o_bias=bias,
        mlp_bias=family.mlp_bias and bool(config.get("mlp_bias", False)),
        qk_norm=family.qk_norm,
        tied=bool(config.get("tie_word_embeddings", False)),
        activation=_activation(config, source),
        windows=_windows(config, family, source),
        query_scale=head_dim**-0.5,
        long_rope=long_rope,
        short_length=short_length,
    )
    return _gemma(result, config, source) if family.gemma else result


def _gemma(plain: DecoderConfig, config: Mapping[str, Any], source: object) -> DecoderConfig:
    """Gemma 2's differences, Riviere et al. (2024)."""
    return dataclasses.replace(
        plain,
        query_scale=_positive(config, "query_pre_attn_scalar", source) ** -0.5,
        score_cap=_positive(config, "attn_logit_softcapping", source, none=0.0),
        logit_cap=_positive(config, "final_logit_softcapping", source, none=0.0),
        embedding_scale=plain.hidden_size**0.5,
        norm_offset=1.0,
        post_norms=True,
    )


def _positive(
    config: Mapping[str, Any], name: str, source: object, none: float | None = None
) -> float:
    """A positive number of the config; ``none`` where it is null, if that is allowed."""
    value = config.get(name)
    if value is None and none is not None:
        return none
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise InputError(f"{source}: {name} is {value!r}; it must be a positive number.")
    return float(value)


def _refuse_unsupported(config: Mapping[str, Any], source: object) -> None:
    if config.get("use_bidirectional_attention"):
        raise InputError(f"{source}: use_bidirectional_attention is not supported.")
    if config.get("quantization_config"):
        raise InputError(
            f"{source}: quantised weights ({config['quantization_config'].get('quant_method')}) "
            "are not supported; use the float16 or bfloat16 checkpoint, or a GGUF file."
        )


def _activation(config: Mapping[str, Any], source: object) -> str:
    field = "hidden_activation" if config.get("hidden_activation") else "hidden_act"
    name = config.get(field, "silu")
    if name not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        raise InputError(f"{source}: {field} is {name!r}; allowed: {allowed}.")
    return name


def _windows(config: Mapping[str, Any], family: Family, source: object) -> tuple[int, ...]:
    """The window of each layer, empty if there is none; see `DecoderConfig`."""
    layers = integer(config, "num_hidden_layers", source)
    kinds, known = config.get("layer_types"), ("full_attention", "sliding_attention")
    if not family.layer_types or kinds is None:
        sliding = family.windows(config)
    elif len(kinds) != layers or not set(kinds) <= set(known):
        raise InputError(
            f"{source}: layer_types is {kinds}; it must name one of {', '.join(known)} for each of "
            f"the {layers} layers."
        )
    else:
        sliding = [kind == "sliding_attention" for kind in kinds]
    if not any(sliding):
        return ()
    window = integer(config, "sliding_window", source)
    return tuple(window if slides else 0 for slides in sliding)


class _Scaling(NamedTuple):
    """What a rope type is computed from.

    Attributes:
      plain: frequencies without scaling.
      theta: base of these.
      settings: the config's, with ``original_max_position_embeddings``.
      longest: max_position_embeddings.
    """

    plain: np.ndarray
    theta: float
    settings: Mapping[str, Any]
    longest: int


def _read_rope(
    config: Mapping[str, Any], family: Family, head_dim: int, *, source: object
) -> tuple[Rope, Rope | None, int]:
    """The rotations that a Hugging Face config describes, as ``rope``, ``long_rope`` and
    ``short_length`` of `DecoderConfig`.

    Two forms are read: ``rope_theta`` with ``rope_scaling``, and ``rope_parameters``, which holds
    both (transformers 5).

    Raises:
      InputError: naming ``source``; for an unknown ``rope_type``, a missing or impossible setting.
    """
    # where a config has both, rope_scaling takes precedence in transformers, too
    settings = {**(config.get("rope_parameters") or {}), **(config.get("rope_scaling") or {})}
    if nested := [name for name, value in settings.items() if isinstance(value, dict)]:
        raise InputError(f"{source}: rope_parameters of single layer types ({nested[0]}).")
    kind = settings.get("rope_type") or settings.get("type") or "default"
    if family.fused and kind in ("su", "yarn"):
        kind = "longrope"  # what Phi-3's first configs call it
    theta = settings.get("rope_theta") or config.get("rope_theta") or 10000.0
    rotated = _rotated(config, settings, family, head_dim, source)
    plain = theta ** -(np.arange(0, rotated, 2) / rotated)
    if kind == "default":
        return Rope(_floats(plain)), None, 0
    if kind not in (*_SCALINGS, "longrope"):
        allowed = ", ".join(["default", *_SCALINGS, "longrope"])
        raise InputError(f"{source}: rope_type is {kind!r}; allowed: {allowed}.")
    longest = integer(config, "max_position_embeddings", source)
    if original := config.get("original_max_position_embeddings"):
        settings["original_max_position_embeddings"] = original  # transformers' precedence
    settings.setdefault("original_max_position_embeddings", longest)
    scaling = _Scaling(plain, theta, settings, longest)
    try:
        if kind == "longrope":
            return *_longrope(scaling), settings["original_max_position_embeddings"]
        return _SCALINGS[kind](scaling), None, 0
    except (KeyError, TypeError) as error:
        raise InputError(f"{source}: rope scaling {kind!r} lacks the setting {error}.") from error
    except ValueError as error:
        raise InputError(f"{source}: rope scaling {kind!r}: {error}") from error


def _rotated(
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
    family: Family,
    head_dim: int,
    source: object,
) -> int:
    """The number of a head's features that are rotated."""
    share = settings.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if share != 1.0 and not family.partial_rotary:
        raise InputError(f"{source}: partial_rotary_factor other than 1 is not supported.")
    rotated = int(head_dim * share)
    if rotated % 2 or not 0 < rotated <= head_dim:
        raise InputError(
            f"{source}: head_dim is {head_dim} and partial_rotary_factor {share}: the rotated "
            f"features, {rotated}, must be an even number within the head."
        )
    return rotated


def _linear(given: _Scaling) -> Rope:
    """Position interpolation, Chen et al. (2023): all frequencies divided by a factor."""
    return Rope(_floats(given.plain / given.settings["factor"]))


def _llama3(given: _Scaling) -> Rope:
    """Llama 3.1: low frequencies are divided by a factor, high ones kept, the others interpolated.

    Low and high refer to the number of turns within the original context.
    """
    plain, settings = given.plain, given.settings
    turns = settings["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    if not low < high:
        raise ValueError(f"low_freq_factor {low} must be below high_freq_factor {high}.")
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return Rope(_floats(plain * kept + plain / settings["factor"] * (1 - kept)))


def _longrope(given: _Scaling) -> tuple[Rope, Rope]:
    """LongRoPE, Ding et al. (2024): each frequency divided by its own factor; attention is scaled.

    There are factors for texts within the original context and others for longer ones.
    """
    settings, original = given.settings, given.settings["original_max_position_embeddings"]
    scale, factor = settings.get("attention_factor"), settings.get("factor")
    factor = factor or given.longest / original
    if scale is None:
        scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    ropes = []
    for name in ("short_factor", "long_factor"):
        divisors = np.asarray(settings[name], np.float64)
        if divisors.shape != given.plain.shape or not (divisors > 0).all():
            raise ValueError(
                f"{name} has {divisors.size} numbers; it must have {given.plain.size} positive "
                "ones, one for each pair of rotated features."
            )
        ropes.append(Rope(_floats(given.plain / divisors), float(scale)))
    return ropes[0], ropes[1]


def _yarn(given: _Scaling) -> Rope:
    """YaRN, Peng et al. (2023): low frequencies are divided by a factor; attention is scaled."""
    plain, theta, settings = given.plain, given.theta, given.settings
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
