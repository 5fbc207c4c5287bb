"""Config of a decoder, read from config.json and checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxrag.models.checkpoint.config_values import (
    HEAD,
    LAYERS,
    WIDTH,
    flag,
    integer,
    number,
    readable,
)
from jaxrag.models.decoder.families import FAMILIES, Family
from jaxrag.models.decoder.rope import Rope, read_rope
from jaxrag.models.layers import ACTIVATIONS
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """Architecture of a decoder; hashable, hence a static argument of jitted functions.

    Attributes:
      rope, long_rope: rotation of queries and keys; the second in texts of more than
        ``short_length`` tokens, None where it is the same.
      qkv_bias, o_bias, mlp_bias: which projections have a bias.
      qk_norm: whether queries and keys are normalised per head (Qwen3).
      tied: whether the output layer is the embedding table.
      activation: of the gate, a name of `jaxrag.models.layers.ACTIVATIONS`.
      windows: for each layer, the number of last positions that a token attends to, its own
        included; 0 means all. Empty if no layer has a window.
      query_scale, embedding_scale: factors of the inner products of queries and keys, of
        embeddings.
      score_cap, logit_cap: soft caps c tanh(x / c) of these scores and of the logits; 0 means none.
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

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        h, m, d = self.hidden_size, self.intermediate_size, self.head_dim
        inputs = d * (self.num_attention_heads + 2 * self.num_key_value_heads)
        layer = h * (inputs + d * self.num_attention_heads + 3 * m)
        layer += h * (4 if self.post_norms else 2) + 2 * d * self.qk_norm
        layer += inputs * self.qkv_bias + h * self.o_bias + (2 * m + h) * self.mlp_bias
        tables = 1 if self.tied else 2
        return tables * self.vocab_size * h + self.num_hidden_layers * layer + h

    def is_long(self, length: int) -> bool:
        """Whether a text of ``length`` tokens is rotated by ``long_rope``, from its first token."""
        return self.long_rope is not None and length > self.short_length

    def for_long_texts(self) -> DecoderConfig:
        """The config with ``long_rope`` as its only rotation."""
        assert self.long_rope is not None, "the rotation does not depend on the length"
        return dataclasses.replace(self, rope=self.long_rope, long_rope=None, short_length=0)


@readable
def read_decoder_config(config: Mapping[str, Any], *, source: object) -> DecoderConfig:
    """The config of a model of `FAMILIES` from its config.json, with transformers' defaults.

    InputError, naming ``source``, for another model type or an unsupported setting.
    """
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        raise InputError(
            f"{source}: model_type is {config.get('model_type')!r}; a decoder is one of "
            f"{', '.join(FAMILIES)}."
        )
    config = {**family.defaults, **config}
    _refuse_unsupported(config, source)
    hidden = integer(config, "hidden_size", source, most=WIDTH)
    heads = integer(config, "num_attention_heads", source, most=hidden)
    present = {name: value for name, value in config.items() if value is not None}
    groups = integer(present, "num_key_value_heads", source, heads)
    head_dim = integer(present, "head_dim", source, hidden // heads, most=HEAD)
    layers = integer(config, "num_hidden_layers", source, most=LAYERS)
    if heads % groups:
        raise InputError(
            f"{source}: num_attention_heads {heads} is not a multiple of num_key_value_heads "
            f"{groups}."
        )
    bias = family.attention_bias and flag(config, "attention_bias", source, False)
    rope, long_rope, short_length = read_rope(config, family, head_dim, source=source)
    result = DecoderConfig(
        vocab_size=integer(config, "vocab_size", source),
        hidden_size=hidden,
        intermediate_size=integer(config, "intermediate_size", source),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        head_dim=head_dim,
        rms_norm_eps=number(config, "rms_norm_eps", source, 1e-6),
        max_position_embeddings=integer(config, "max_position_embeddings", source),
        rope=rope,
        qkv_bias=family.qkv_bias or bias,
        o_bias=bias,
        mlp_bias=family.mlp_bias and flag(config, "mlp_bias", source, False),
        qk_norm=family.qk_norm,
        tied=flag(config, "tie_word_embeddings", source, False),
        activation=_activation(config, family, source),
        windows=_windows(config, family, layers, source),
        query_scale=head_dim**-0.5,
        long_rope=long_rope,
        short_length=short_length,
    )
    return _gemma(result, config, source) if family.gemma else result


def _gemma(plain: DecoderConfig, config: Mapping[str, Any], source: object) -> DecoderConfig:
    """Gemma 2's differences, Riviere et al. (2024)."""
    return dataclasses.replace(
        plain,
        query_scale=number(config, "query_pre_attn_scalar", source) ** -0.5,
        score_cap=_cap(config, "attn_logit_softcapping", source),
        logit_cap=_cap(config, "final_logit_softcapping", source),
        embedding_scale=plain.hidden_size**0.5,
        norm_offset=1.0,
        post_norms=True,
    )


def _cap(config: Mapping[str, Any], name: str, source: object) -> float:
    """A positive number of the config, 0 where it is null."""
    return 0.0 if config.get(name) is None else number(config, name, source)


def _refuse_unsupported(config: Mapping[str, Any], source: object) -> None:
    if config.get("use_bidirectional_attention"):
        raise InputError(f"{source}: use_bidirectional_attention is not supported.")
    if config.get("quantization_config"):
        raise InputError(
            f"{source}: quantised weights ({config['quantization_config'].get('quant_method')}) "
            "are not supported; use the float16 or bfloat16 checkpoint, or a GGUF file."
        )


def _activation(config: Mapping[str, Any], family: Family, source: object) -> str:
    gemma_name = family.gemma and config.get("hidden_activation")
    field = "hidden_activation" if gemma_name else "hidden_act"
    name = config.get(field, "silu")
    if name not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        raise InputError(f"{source}: {field} is {name!r}; allowed: {allowed}.")
    return name


def _windows(
    config: Mapping[str, Any], family: Family, layers: int, source: object
) -> tuple[int, ...]:
    """The window of each layer, empty if there is none; see `DecoderConfig`."""
    kinds, names = config.get("layer_types"), ("full_attention", "sliding_attention")
    if not family.layer_types or kinds is None:
        sliding = family.windows(config)
    elif len(kinds) != layers or not set(kinds) <= set(names):
        raise InputError(
            f"{source}: layer_types is {kinds}; it must name one of {', '.join(names)} for each of "
            f"the {layers} layers."
        )
    else:
        sliding = [kind == "sliding_attention" for kind in kinds]
    if not any(sliding):
        return ()
    window = integer(config, "sliding_window", source)
    return tuple(window if slides else 0 for slides in sliding)
