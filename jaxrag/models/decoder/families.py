"""The supported decoder families: one row each, by the ``model_type`` of their checkpoints."""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """Differences of a family from the plain Llama layer.

    Attributes:
      architecture: its class in transformers, for exported checkpoints.
      qkv_bias: whether query, key and value projections always have a bias, and the output
        projection none; otherwise ``attention_bias`` of the config decides for all four.
      mlp_bias: whether ``mlp_bias`` of the config applies.
      qk_norm: whether queries and keys are normalised per head.
      head_dim: features of a head where the config has none; 0 is hidden_size / heads.
      gguf_interleaved: whether llama.cpp's converter interleaves the halves of each head.
    """

    architecture: str
    qkv_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    head_dim: int = 0
    gguf_interleaved: bool = False


FAMILIES = {
    "llama": Family("LlamaForCausalLM", mlp_bias=True, gguf_interleaved=True),
    "qwen2": Family("Qwen2ForCausalLM", qkv_bias=True),
    "qwen3": Family("Qwen3ForCausalLM", qk_norm=True, head_dim=128),
}
