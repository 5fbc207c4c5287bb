"""Losses of a retriever: the contrastive losses of DPR, SiDR and R3, and KL divergence.

    >>> queries = passages = jnp.eye(2)[None]  # of one batch
    >>> jax.device_get(jax.jit(jax.vmap(in_batch_negatives))(queries, passages)).round(2)
    array([[0.31, 0.31]], dtype=float32)

docs/methods, "R3: loss"; Karpukhin et al. 2020 (DPR), Zhou et al. (SiDR), R3. Symbols: a batch
has n questions q_i, each with a positive passage d_i, and hard negatives; its m passages d_1 .. d_m
are candidates for each question. f(q, d) = <q, d>, the inner product of two vectors: over the
vocabulary in SiDR, of hidden states in DPR. log P(d | q) is the log-softmax of f over passages,
log P(q | d) that over questions.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxrag.types import InputError

Form = Literal["paper", "released", "dpr"]
"""Of the contrastive loss: SiDR's two (`sidr_loss`), or DPR's (`in_batch_negatives`)."""


class Embedded(NamedTuple):
    """SiDR's vectors of n texts.

    Attributes:
      dense: E(x), all entries positive.
      sparse: E(x) with all entries zero except the largest and those of the text's own tokens.
      tokens: T(x), 1 at the tokens of the text.
    """

    dense: Float[Array, "n v"]
    sparse: Float[Array, "n v"]
    tokens: Float[Array, "n v"]


def symmetric_contrastive(
    queries: Float[Array, "n v"], passages: Float[Array, "m v"]
) -> Float[Array, " n"]:
    """L_i = -log P(d_i | q_i) - log P(q_i | d_i) of each question i, in nats.

    R3's L(q, d) is their sum; the released code has the same two cross-entropies. ``passages`` are
    the vectors of the positives d_1 .. d_n, then those of the hard negatives.
    """
    scores = _scores(queries, passages)
    among_passages = jnp.diagonal(jax.nn.log_softmax(scores, axis=1))
    among_queries = jnp.diagonal(jax.nn.log_softmax(scores, axis=0))
    return -among_passages - among_queries


def in_batch_negatives(
    queries: Float[Array, "n v"], passages: Float[Array, "m v"]
) -> Float[Array, " n"]:
    """L_i = -log P(d_i | q_i) of each question i, in nats (Karpukhin et al. 2020, equation 2)."""
    return -jnp.diagonal(jax.nn.log_softmax(_scores(queries, passages), axis=1))


def _scores(queries: Float[Array, "n v"], passages: Float[Array, "m v"]) -> Float[Array, "n m"]:
    if len(passages) < len(queries):
        raise InputError(
            f"{len(passages)} passages for {len(queries)} questions: each needs its positive, "
            "in the same order, before any hard negatives."
        )
    return jnp.matmul(queries, passages.T, precision=jax.lax.Precision.HIGHEST)


def sidr_loss(queries: Embedded, passages: Embedded, *, form: Form = "paper") -> Float[Array, ""]:
    """sum_i L_i(E(q), E(d)) + L_i(E(q), T(d)) / 2 + L_i(T(q), E(d)) / 2: SiDR's loss of a batch.

    L is `symmetric_contrastive`, E the sparse vectors, T the bags of tokens, see `Embedded`. This
    is ``form`` "paper", where E is sparse as the paper defines it. (It does not say whether that
    includes the loss; for dense vectors there, pass them as the sparse ones.)
    "released": mean_i [L_i(Ek(q), E(d)) + L_i(E(q), Ek(d)) + L_i(T(q), E(d)) + L_i(E(q), T(d))] / 4
    with sparse Ek and dense E.
    """
    loss = symmetric_contrastive
    if form == "paper":
        q, d = queries.sparse, passages.sparse
        return jnp.sum(loss(q, d) + loss(q, passages.tokens) / 2 + loss(queries.tokens, d) / 2)
    if form == "released":
        parametric = loss(queries.sparse, passages.dense) + loss(queries.dense, passages.sparse)
        semi = loss(queries.dense, passages.tokens) + loss(queries.tokens, passages.dense)
        return jnp.mean(parametric + semi) / 4
    raise InputError(f"form is {form!r}; allowed are 'paper' and 'released'.")


def distillation(
    scores: Float[Array, "n m"], targets: Float[Array, "n m"], *, temperature: float = 1.0
) -> Float[Array, ""]:
    """mean_q sum_d P(d) log(P(d) / R(d)) = mean_q KL(P || R), in nats (Shi et al., 2023: RePlug).

    R3's ablation. R is the softmax of the retriever's ``scores`` over a question's m passages, P
    that of ``targets`` / ``temperature``, the language model's log P(y | q, d), without gradient.
    A target of -inf has probability 0.
    """
    target = jax.nn.log_softmax(jax.lax.stop_gradient(targets) / temperature, axis=1)
    predicted = jax.nn.log_softmax(scores, axis=1)
    weight = jnp.exp(target)
    terms = jnp.where(weight > 0, weight * (jnp.where(weight > 0, target, 0.0) - predicted), 0.0)
    return terms.sum(axis=1).mean()
