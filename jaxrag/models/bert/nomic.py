"""NomicBert, the encoder of nomic-embed-text (Nussbaum et al. 2024, "Nomic Embed").

Differences from BERT: rotary positions instead of learned ones, SwiGLU instead of GELU, no biases
of matrices, and one matrix for query, key and value. Modules are named as in its checkpoints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.bert.network import attend
from jaxrag.models.checkpoint.config_values import LAYERS, WIDTH, flag, integer, number, readable
from jaxrag.models.layers import Embedding, LayerNorm, Linear
from jaxrag.models.precision import matmul_precision
from jaxrag.models.rotary import Rotation, rotate, rotation_of
from jaxrag.types import InputError

MODEL_TYPE = "nomic_bert"

# Fields of config.json whose other values would change the network; absent ones have these values.
_FIXED: dict[str, Any] = {
    "activation_function": "swiglu",
    "prenorm": False,
    "parallel_block": False,
    "causal": False,
    "use_rms_norm": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}
_NAMES = {
    "vocab_size": "vocab_size",
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "type_vocab_size": "type_vocab_size",
}


@dataclasses.dataclass(frozen=True)
class NomicConfig:
    """Architecture of a NomicBert.

    Attributes:
      max_tokens: length of the training; the published code stretches the rotation beyond it.
      rotary_base: the longest wavelength of the rotation is about 2 pi times that, in tokens.
      attention_bias, up_bias, down_bias: which matrices have biases: those of attention, the first
        two and the last of the feed-forward.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    max_tokens: int
    rotary_base: float
    attention_bias: bool
    up_bias: bool
    down_bias: bool
    pad_token_id: int = 0


@readable
def read_nomic_config(config: Mapping[str, Any], *, source: object) -> NomicConfig:
    """The config of a NomicBert from its config.json; InputError for one that is not supported."""
    for name, value in _FIXED.items():
        if (setting := config.get(name, value)) != value:
            raise InputError(f"{source}: {name} is {setting!r}; only {value!r} is supported.")
    most = {"num_hidden_layers": LAYERS, "hidden_size": WIDTH}
    sizes = {
        name: integer(config, field, source, most=most.get(name, 2**31 - 1))
        for name, field in _NAMES.items()
    }
    positions = sizes["max_position_embeddings"]
    trained = integer(config, "max_trained_positions", source, positions)
    base = number(config, "rotary_emb_base", source, 10_000)
    if base <= 1:
        raise InputError(f"{source}: rotary_emb_base is {base!r}; a number above 1 is needed.")
    if sizes["hidden_size"] % (2 * sizes["num_attention_heads"]):
        raise InputError(
            f"{source}: n_embd {sizes['hidden_size']} is not an even multiple of n_head "
            f"{sizes['num_attention_heads']}."
        )
    return NomicConfig(
        **sizes,
        layer_norm_eps=number(config, "layer_norm_epsilon", source, 1e-12),
        max_tokens=min(positions, trained),
        rotary_base=base,
        attention_bias=flag(config, "qkv_proj_bias", source, True),
        up_bias=flag(config, "mlp_fc1_bias", source, True),
        down_bias=flag(config, "mlp_fc2_bias", source, True),
    )


def rotation_over(t: int, *, base: float, features: int) -> Rotation:
    """The rotation of ``t`` tokens, pair i of features by base^(-2i/features) radians a token."""
    half = features // 2
    frequencies = base ** -(jnp.arange(half, dtype=jnp.float32) / half)
    return rotation_of(jnp.arange(t)[None], frequencies)


class NomicLayer(nn.Module):
    """Attention, then a gated feed-forward, both with post-normalisation."""

    config: NomicConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "b t d"], rotation: Rotation, *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b t d"]:
        c = self.config
        projected = Linear(3 * c.hidden_size, c.attention_bias, name="attn.Wqkv")(x)
        parts = projected.reshape(*x.shape[:2], 3, c.num_attention_heads, -1)
        query, key, value = (parts[:, :, i] for i in range(3))
        y = attend(rotate(query, rotation), rotate(key, rotation), value, where=where)
        y = Linear(c.hidden_size, c.attention_bias, name="attn.out_proj")(y)
        x = LayerNorm(c.layer_norm_eps, name="norm1")(x + y)
        up = Linear(c.intermediate_size, c.up_bias, name="mlp.fc11")(x)
        gate = Linear(c.intermediate_size, c.up_bias, name="mlp.fc12")(x)
        y = Linear(c.hidden_size, c.down_bias, name="mlp.fc2")(up * jax.nn.silu(gate))
        return LayerNorm(c.layer_norm_eps, name="norm2")(x + y)


class NomicEncoder(nn.Module):
    """Hidden states of the last layer."""

    config: NomicConfig
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, ids: Int[Array, "b t"], segments: Int[Array, "b t"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b t d"]:
        c = self.config

        def embed(name: str, rows: int, ids: Int[Array, "b t"]) -> Float[Array, "b t d"]:
            table = Embedding(rows, c.hidden_size, name=f"embeddings.{name}_embeddings")
            return table(ids).astype(self.dtype)

        with matmul_precision(self.dtype):
            x = embed("word", c.vocab_size, ids) + embed("token_type", c.type_vocab_size, segments)
            x = LayerNorm(c.layer_norm_eps, name="emb_ln")(x)
            features = c.hidden_size // c.num_attention_heads
            rotation = rotation_over(ids.shape[1], base=c.rotary_base, features=features)
            traced_once = nn.jit(NomicLayer)
            for i in range(c.num_hidden_layers):
                x = traced_once(c, name=f"encoder.layers.{i}")(x, rotation, where=where)
            return x
