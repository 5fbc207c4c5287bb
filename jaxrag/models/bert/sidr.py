"""SiDR, the retriever of R3: a text as weights over the vocabulary, and as the set of its tokens.

docs/methods.md, "R3: SiDR"; Zhou et al., "Semi-parametric retrieval via binary bag-of-tokens
index". E(x) comes from BERT's last hidden states through a layer norm and the word embeddings
themselves: elu(z) + 1, the largest over the tokens of the text. T(x) is 1 at the text's tokens and
needs no network. Both leave out the first token ids, which are none of words (``first``; in BERT's
vocabulary 999: padding, special and unused ones), as the released code does.
"""

from __future__ import annotations

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.bert.network import BertConfig, BertEncoder, LayerNorm
from jaxrag.models.precision import linear, matmul_precision

_CHUNK = 16  # tokens of each text whose logits exist at once

Towers = dict[str, Any]
"""Parameters of one network for questions and one for passages, under "query" and "passage"; or of
one for both, under "both"."""


def tower(params: Towers, side: Literal["query", "passage"]) -> Any:
    """The parameters that embed questions, or passages."""
    return params["both"] if "both" in params else params[side]


def elu1p(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """elu(x) + 1: x + 1 above 0, exp(x) below; positive and increasing, with derivative 1 at 0."""
    # `where` and not `minimum(x, 0)`, whose derivative is 1/2 where both are equal.
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.where(x > 0, 0, x)))


def pooled_logits(
    hidden: Float[Array, "b t d"],
    table: Float[Array, "v d"],
    *,
    where: Bool[Array, "b t"],
    chunk: int = _CHUNK,
) -> Float[Array, "b v"]:
    """The largest of each text's logits for each word, float32; -inf for a text without tokens.

    The logits of ``chunk`` tokens exist at a time, in differentiating, too: the gradient goes to
    the token that had the largest (of equal ones the first), and only which that was is kept. So
    the memory that this takes beside its arguments does not grow with the length of the texts.
    """
    b, t, d = hidden.shape
    parts = -(-t // chunk)
    hidden = jnp.pad(hidden, ((0, 0), (0, parts * chunk - t), (0, 0)))
    where = jnp.pad(where, ((0, 0), (0, parts * chunk - t)))
    hidden = hidden.reshape(b, parts, chunk, d).swapaxes(0, 1)
    return _pool(hidden, table, where.reshape(b, parts, chunk).swapaxes(0, 1))


@jax.custom_vjp
def _pool(
    hidden: Float[Array, "p b c d"], table: Float[Array, "v d"], where: Bool[Array, "p b c"]
) -> Float[Array, "b v"]:
    return _largest(hidden, table, where)[0]


def _largest(
    hidden: Float[Array, "p b c d"], table: Float[Array, "v d"], where: Bool[Array, "p b c"]
) -> tuple[Float[Array, "b v"], Int[Array, "b v"]]:
    """The largest logits, and which token of the text has each."""
    parts, b, chunk, _ = hidden.shape

    def larger(state: tuple[Any, Any], part: tuple[Any, Any, Any]) -> tuple[tuple[Any, Any], None]:
        (most, at), (x, real, first) = state, part
        logits = jnp.where(real[..., None], linear(x, table).astype(jnp.float32), -jnp.inf)
        new = logits.max(axis=1)
        at = jnp.where(new > most, first + logits.argmax(axis=1), at)
        return (jnp.maximum(most, new), at), None

    firsts = jnp.arange(parts) * chunk
    nothing = (
        jnp.full((b, len(table)), -jnp.inf, jnp.float32),
        jnp.zeros((b, len(table)), jnp.int32),
    )
    return jax.lax.scan(larger, nothing, (hidden, where, firsts))[0]


def _forward(hidden: Any, table: Any, where: Any) -> tuple[Any, tuple[Any, ...]]:
    most, at = _largest(hidden, table, where)
    return most, (hidden, table, most, at)


def _backward(kept: tuple[Any, ...], slope: Float[Array, "b v"]) -> tuple[Any, Any, None]:
    hidden, table, most, at = kept
    parts, _, chunk, _ = hidden.shape
    slope = jnp.where(most > -jnp.inf, slope, 0.0)

    def add(total: Float[Array, "v d"], part: tuple[Any, Any]) -> tuple[Any, Float[Array, "b c d"]]:
        x, first = part
        chosen = at[:, None] == first + jnp.arange(chunk)[:, None]
        slopes = jnp.where(chosen, slope[:, None], 0.0).astype(x.dtype)
        to_x = jnp.einsum("bcv,vd->bcd", slopes, table, preferred_element_type=jnp.float32)
        total += jnp.einsum("bcv,bcd->vd", slopes, x, preferred_element_type=jnp.float32)
        return total, to_x.astype(x.dtype)

    nothing = jnp.zeros(table.shape, jnp.float32)
    total, to_hidden = jax.lax.scan(add, nothing, (hidden, jnp.arange(parts) * chunk))
    return to_hidden, total.astype(table.dtype), None


_pool.defvjp(_forward, _backward)


class SidrNetwork(nn.Module):
    """E(x) of texts, float32 [b, v - first]; one tower.

    Attributes:
      config: of the BERT below.
      dtype: what is computed in; norms and pooling are float32 regardless.
      first: the first token id that counts.
      masked: whether padding is left out of the pooling. The released code lets it in, so that a
        text's vector depends on the batch; only its checkpoints want that.
    """

    config: BertConfig
    dtype: Any = jnp.float32
    first: int = 999
    masked: bool = True

    @nn.compact
    def __call__(
        self, ids: Int[Array, "b t"], segments: Int[Array, "b t"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b v"]:
        body = BertEncoder(self.config, self.dtype, name="bert")
        hidden: Any = body(ids, segments, where=where)
        x = LayerNorm(self.config.layer_norm_eps, self.dtype, name="norm")(hidden)
        table = body.variables["params"]["embeddings"]["word_embeddings"]["weight"][self.first :]
        with matmul_precision(self.dtype):
            pooled = pooled_logits(x, table, where=where if self.masked else where | True)
        return elu1p(pooled)


def bag_of_tokens(
    ids: Int[Array, "b t"], *, where: Bool[Array, "b t"], vocabulary: int, first: int = 999
) -> Float[Array, "b v"]:
    """T(x): 1 at the text's tokens, else 0; ids below ``first`` are left out."""
    size = vocabulary - first
    places = jnp.where(where & (ids >= first), ids - first, size)  # those beyond are dropped
    rows = jnp.arange(len(ids))[:, None]
    return jnp.zeros((len(ids), size), jnp.float32).at[rows, places].set(1.0, mode="drop")


def keep_top(
    dense: Float[Array, "b v"], k: int, *, tokens: Float[Array, "b v"] | None = None
) -> Float[Array, "b v"]:
    """E(x) with all but its k largest entries zero; of equal ones the first.

    Args:
      tokens: T(x), whose entries stay besides.
    """
    _, places = jax.lax.top_k(dense, min(k, dense.shape[-1]))
    rows = jnp.arange(len(dense))[:, None]
    kept = jnp.zeros(dense.shape, jnp.bool_).at[rows, places].set(True)
    if tokens is not None:
        kept |= tokens > 0
    return jnp.where(kept, dense, 0.0)
