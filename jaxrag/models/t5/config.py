"""Config of a T5, read from config.json and checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxrag.models.checkpoint.config_values import LAYERS, WIDTH, flag, integer, number, readable
from jaxrag.models.layers import ACTIVATIONS
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class T5Config:
    """Architecture of a T5; hashable, hence a static argument of jitted functions.

    Names are those of config.json, except: ``activation`` and ``gated`` come from
    ``feed_forward_proj`` (T5 1.0: ReLU, not gated; 1.1 and Flan: gated GELU, tanh form); ``tied``
    is whether the output layer is the embedding table, ``scaled`` whether hidden states are
    multiplied by d_model^-1/2 before it (both true in 1.0, both false in 1.1).
    """

    vocab_size: int
    d_model: int
    d_kv: int
    d_ff: int
    num_layers: int
    num_decoder_layers: int
    num_heads: int
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    layer_norm_epsilon: float = 1e-6
    dropout_rate: float = 0.1
    initializer_factor: float = 1.0
    activation: str = "relu"
    gated: bool = False
    tied: bool = True
    scaled: bool = True
    pad_token_id: int = 0
    eos_token_id: int = 1
    decoder_start_token_id: int = 0

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Layers, heads and features of a head of the decoder, for `empty_cache`."""
        return self.num_decoder_layers, self.num_heads, self.d_kv


_SIZES = ("vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads")
_MOST = {"num_layers": LAYERS, "vocab_size": 2**31 - 1}
_BUCKETS = ("relative_attention_num_buckets", "relative_attention_max_distance")
_NUMBERS = ("layer_norm_epsilon", "dropout_rate", "initializer_factor")
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(T5Config)}


@readable
def read_t5_config(config: Mapping[str, Any], *, source: object) -> T5Config:
    """The config of a T5 1.0, T5 1.1 or Flan-T5; InputError for one that is not supported."""
    if (family := config.get("model_type")) != "t5":
        raise InputError(
            f"{source}: model_type is {family!r}; an encoder-decoder is 't5' (T5, Flan-T5)."
        )
    if quantised := config.get("quantization_config"):
        raise InputError(
            f"{source}: quantised weights ({quantised.get('quant_method')}) are not "
            "supported; use the float32 or bfloat16 checkpoint."
        )
    values: dict[str, Any] = {
        name: integer(config, name, source, most=_MOST.get(name, WIDTH)) for name in _SIZES
    }
    values |= {name: integer(config, name, source, _DEFAULTS[name], least=4) for name in _BUCKETS}
    present = {name: value for name, value in config.items() if value is not None}
    values["num_decoder_layers"] = integer(
        present, "num_decoder_layers", source, values["num_layers"], most=LAYERS
    )
    values |= {name: number(config, name, source, _DEFAULTS[name], zero=True) for name in _NUMBERS}
    if values[_BUCKETS[1]] <= values[_BUCKETS[0]] // 2:
        raise InputError(
            f"{source}: {_BUCKETS[1]} is {values[_BUCKETS[1]]}; it must be above half of "
            f"{_BUCKETS[0]}, {values[_BUCKETS[0]]}."
        )
    if (dropped := values["dropout_rate"]) >= 1:
        raise InputError(f"{source}: dropout_rate is {dropped}; it must be below 1.")
    activation, gated = _feed_forward(config, source)
    # transformers 5 always ties, and says with scale_decoder_outputs what the first used to say
    tied = flag(config, "tie_word_embeddings", source, True)
    return T5Config(
        **values,
        activation=activation,
        gated=gated,
        tied=tied,
        scaled=flag(config, "scale_decoder_outputs", source, tied),
        **_tokens(config, values["vocab_size"], source),
    )


def t5_json(config: T5Config) -> dict[str, Any]:
    """Content of config.json; inverse of `read_t5_config`.

    ``scale_decoder_outputs``, which transformers has since version 5, is left out where it is
    usual.
    """
    values = dataclasses.asdict(config)
    activation, gated = values.pop("activation"), values.pop("gated")
    tied, scaled = values.pop("tied"), values.pop("scaled")
    feed_forward = f"gated-{activation}" if gated else activation
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        **values,
        "feed_forward_proj": "gated-gelu" if feed_forward == "gated-gelu_new" else feed_forward,
        "tie_word_embeddings": tied,
        **({} if tied == scaled else {"scale_decoder_outputs": scaled}),
    }


def _feed_forward(config: Mapping[str, Any], source: object) -> tuple[str, bool]:
    """The activation's name in `ACTIVATIONS`, and whether the layer is gated."""
    text = config.get("feed_forward_proj", "relu")
    gate, _, name = text.rpartition("-") if isinstance(text, str) else ("?", "", "?")
    if gate not in ("", "gated") or name not in ACTIVATIONS:
        allowed = ", ".join(f"{name}, gated-{name}" for name in ACTIVATIONS)
        raise InputError(f"{source}: feed_forward_proj is {text!r}; allowed: {allowed}.")
    # in this name alone, "gelu" means the tanh form
    return ("gelu_new" if text == "gated-gelu" else name), bool(gate)


def _tokens(config: Mapping[str, Any], vocab_size: int, source: object) -> dict[str, int]:
    tokens = {name: config.get(name, _DEFAULTS[name]) for name in ("pad_token_id", "eos_token_id")}
    tokens["decoder_start_token_id"] = config.get("decoder_start_token_id", tokens["pad_token_id"])
    for name, value in tokens.items():
        if not isinstance(value, int) or not 0 <= value < vocab_size:
            raise InputError(
                f"{source}: {name} is {value!r}; it must be a token id from 0 to {vocab_size - 1}."
            )
    return tokens
