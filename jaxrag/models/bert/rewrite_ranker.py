"""ARS-RAG's ranker: a BERT that reads question and rewrite together, and gives one score.

docs/methods.md, "ARS-RAG: ranker": S(q_i, Q) is "BERT encoder + classification head, dropout 0.1".
How the two enter is not stated; here they are one sequence of two segments, as a cross-encoder
reads them. The encoder of `jaxrag.models.bert.network` has no dropout, so there is a dropout head
only: what the encoder gives is dropped out before the linear layer, and nothing inside of the
encoder is.
"""

from __future__ import annotations

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.bert.network import BertConfig, BertEncoder, BertLinear, cls_pool, mean_pool
from jaxrag.models.precision import matmul_precision

Pooling = Literal["cls", "mean"]


class RankerNetwork(nn.Module):
    """One score [b, 1] for each pair, float32: a linear layer over the pooled last states.

    Attributes:
      config: of the encoder.
      dtype: what the encoder computes in; the head is float32.
      pooling: the first token's state ("cls"), or the "mean" of all tokens' states.
    """

    config: BertConfig
    dtype: Any = jnp.float32
    pooling: Pooling = "cls"

    @nn.compact
    def __call__(
        self,
        ids: Int[Array, "b t"],
        segments: Int[Array, "b t"],
        *,
        where: Bool[Array, "b t"],
        noise: Float[Array, "b d"] | None = None,
    ) -> Float[Array, "b 1"]:
        c = self.config
        hidden: Any = BertEncoder(c, self.dtype, name=c.family)(ids, segments, where=where)
        pooled = mean_pool(hidden, where=where) if self.pooling == "mean" else cls_pool(hidden)
        pooled = pooled if noise is None else pooled * noise
        with matmul_precision(jnp.dtype(jnp.float32)):
            return BertLinear(1, jnp.dtype(jnp.float32), name="classifier")(pooled)


def dropout_noise(key: jax.Array, shape: tuple[int, ...], rate: float) -> Float[Array, "*shape"]:
    """What states are multiplied with: 0 with probability ``rate``, else 1 / (1 - rate).

    Its mean is 1 (Srivastava et al., 2014, in the inverted form), so nothing is rescaled later.
    """
    kept = jax.random.bernoulli(key, 1.0 - rate, shape)
    return jnp.where(kept, 1.0 / (1.0 - rate), 0.0).astype(jnp.float32)
