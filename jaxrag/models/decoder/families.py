"""The supported decoder families: one row each, by the ``model_type`` of their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


def no_window(config: Mapping[str, Any]) -> list[bool]:
    """For each layer False: none has a sliding window."""
    return [False] * config["num_hidden_layers"]


def every_layer(config: Mapping[str, Any]) -> list[bool]:
    """For each layer, whether it has a window: all unless ``sliding_window`` is null (Mistral)."""
    return [config.get("sliding_window") is not None] * config["num_hidden_layers"]


def even_layers(config: Mapping[str, Any]) -> list[bool]:
    """For each layer, whether it has a sliding window: layers 0, 2, 4, ... (Gemma 2)."""
    return [i % 2 == 0 for i in range(config["num_hidden_layers"])]


def upper_layers(config: Mapping[str, Any]) -> list[bool]:
    """For each layer, whether it has a window: from ``max_window_layers`` on, if any (Qwen)."""
    first, layers = config["max_window_layers"], config["num_hidden_layers"]
    used = bool(config.get("use_sliding_window")) and config.get("sliding_window") is not None
    return [used and i >= first for i in range(layers)]


class Family(NamedTuple):
    """Differences of a family from the plain Llama layer.

    Attributes:
      architecture: its class in transformers, for exported checkpoints.
      defaults: values of fields that its config.json may leave out, as in transformers.
      qkv_bias: whether query, key and value projections always have a bias, and the output none.
      attention_bias, mlp_bias: whether these fields of the config apply, the first to all four.
      qk_norm: whether queries and keys are normalised per head.
      windows: config -> for each layer, whether its attention has a sliding window.
      layer_types: whether the config's ``layer_types``, if given, replaces ``windows``.
      fused: whether the checkpoint has one matrix for queries, keys and values, and one for the
        MLP's gate and up projections.
      partial_rotary: whether ``partial_rotary_factor`` of the config applies.
      gemma: whether the layer is Gemma 2's: norms also after attention and MLP, all with 1 + weight
        as factor; scaled embeddings; soft caps of scores and logits.
      gguf_interleaved: whether llama.cpp's converter interleaves the halves of each head.
    """

    architecture: str
    defaults: Mapping[str, Any] = MappingProxyType({})
    qkv_bias: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    windows: Callable[[Mapping[str, Any]], list[bool]] = no_window
    layer_types: bool = False
    fused: bool = False
    partial_rotary: bool = False
    gemma: bool = False
    gguf_interleaved: bool = False


_QWEN = {"sliding_window": 4096, "max_window_layers": 28}
_GEMMA2 = {
    "hidden_activation": "gelu_pytorch_tanh",
    "head_dim": 256,
    "num_key_value_heads": 4,
    "tie_word_embeddings": True,
    "sliding_window": 4096,
    "query_pre_attn_scalar": 256,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}

FAMILIES = {
    "llama": Family("LlamaForCausalLM", attention_bias=True, mlp_bias=True, gguf_interleaved=True),
    "mistral": Family(
        "MistralForCausalLM",
        {"sliding_window": 4096, "num_key_value_heads": 8},
        windows=every_layer,
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM", _QWEN, qkv_bias=True, windows=upper_layers, layer_types=True
    ),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        {**_QWEN, "head_dim": 128},
        attention_bias=True,
        qk_norm=True,
        windows=upper_layers,
        layer_types=True,
    ),
    "phi3": Family(
        "Phi3ForCausalLM",
        {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
        windows=every_layer,
        fused=True,
        partial_rotary=True,
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        _GEMMA2,
        attention_bias=True,
        windows=even_layers,
        layer_types=True,
        gemma=True,
    ),
}
