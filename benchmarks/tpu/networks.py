"""Shapes of the papers' BERTs, with the parameters that jaxrag's loaders make of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from benchmarks.tpu.chips import Place
from jaxrag.models.bert.checkpoint import initialise, read_bert_config
from jaxrag.models.bert.network import BertConfig

BFLOAT16 = jnp.dtype(jnp.bfloat16)
FLOAT32 = jnp.dtype(jnp.float32)

BASE: dict[str, Any] = {
    "model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "intermediate_size": 3072,
    "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 512,
    "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0,
}  # fmt: skip
"""BERT-base: E5-base, DPR's and SiDR's towers."""

LARGE: dict[str, Any] = BASE | {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16,
}  # fmt: skip
"""BERT-large: bge-large."""

RERANKER: dict[str, Any] = BASE | {
    "model_type": "xlm-roberta", "vocab_size": 250002, "max_position_embeddings": 514,
    "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "num_labels": 1,
}  # fmt: skip
"""XLM-RoBERTa-base with one label: bge-reranker-base."""

NOMIC: dict[str, Any] = {
    "vocab_size": 30528, "n_embd": 768, "n_inner": 3072, "n_layer": 12, "n_head": 12,
    "n_positions": 8192, "type_vocab_size": 2, "rotary_emb_base": 1000, "qkv_proj_bias": False,
    "mlp_fc1_bias": False, "mlp_fc2_bias": False,
}  # fmt: skip
"""nomic-embed-text-v1.5, without the settings that have one value."""


def bert(shape: dict[str, Any]) -> BertConfig:
    """A BERT's config."""
    return read_bert_config(shape, source="benchmarks.tpu")


def bert_parameters(module: Any, where: Place, dtype: DTypeLike) -> Any:
    """Of a network on a BERT, on every device; norms are float32."""
    template = jax.eval_shape(lambda: initialise(module))

    def one(path: Any, leaf: Any) -> jax.ShapeDtypeStruct:
        norm = "norm" in jax.tree_util.keystr(path).lower()
        return where.array(leaf.shape, FLOAT32 if norm else dtype)

    return jax.tree_util.tree_map_with_path(one, template)


def bert_weights(config: BertConfig) -> int:
    """Number of a BERT's parameters, without pooler and heads."""
    d, inner = config.hidden_size, config.intermediate_size
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    layer = 4 * d * (d + 1) + inner * (2 * d + 1) + d + 4 * d
    return d * (rows + 2) + config.num_hidden_layers * layer


def bert_flops(config: BertConfig, rows: int, width: int) -> float:
    """Operations of matrix products of a BERT's layers for ``rows`` texts of ``width`` tokens."""
    d = config.hidden_size
    layer = 2 * (4 * d * d + 2 * d * config.intermediate_size) + 4 * width * d
    return float(rows * width * config.num_hidden_layers * layer)
