"""Losses of a retriever: the contrastive losses of DPR, SiDR and R3, and KL divergence.

docs/methods.md, "R3: loss"; Karpukhin et al. 2020 (DPR), Zhou et al. (SiDR), R3. A batch has n
questions, each with a positive passage and hard negatives; all passages of the batch are candidates
for each question. Relevance is the inner product of two vectors at temperature 1: over the
vocabulary in SiDR, of hidden states in DPR.
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
    """-log P(passage i | query i) - log P(query i | passage i) of each question, in nats.

    The first probability is over all m passages, the second over all n queries (R3's L(q, d); the
    released code's two cross-entropies).

    Args:
      queries: vectors of the questions.
      passages: vectors of the positives, in the order of the questions, then of hard negatives.
    """
    scores = _scores(queries, passages)
    among_passages = jnp.diagonal(jax.nn.log_softmax(scores, axis=1))
    among_queries = jnp.diagonal(jax.nn.log_softmax(scores, axis=0))
    return -among_passages - among_queries


def in_batch_negatives(
    queries: Float[Array, "n v"], passages: Float[Array, "m v"]
) -> Float[Array, " n"]:
    """-log P(passage i | query i) of each question among all m passages, in nats.

    Karpukhin et al. 2020 (DPR), equation 2; arguments as of `symmetric_contrastive`.
    """
    return -jnp.diagonal(jax.nn.log_softmax(_scores(queries, passages), axis=1))


def _scores(queries: Float[Array, "n v"], passages: Float[Array, "m v"]) -> Float[Array, "n m"]:
    if len(passages) < len(queries):
        raise InputError(
            f"{len(passages)} passages for {len(queries)} questions: each needs its positive, "
            "in the same order, before any hard negatives."
        )
    return jnp.matmul(queries, passages.T, precision=jax.lax.Precision.HIGHEST)


def sidr_loss(queries: Embedded, passages: Embedded, *, form: Form = "paper") -> Float[Array, ""]:
    """SiDR's loss of a batch, parametric and semi-parametric; L is `symmetric_contrastive`.

    "paper": L(E(q), E(d)) + L(E(q), T(d)) / 2 + L(T(q), E(d)) / 2, summed over the batch, with
    sparse E, as the paper defines E. (It does not say whether that includes the loss; for dense
    vectors there, pass them as the sparse ones.)
    "released": [L(Ek(q), E(d)) + L(E(q), Ek(d)) + L(T(q), E(d)) + L(E(q), T(d))] / 4, with sparse
    Ek and dense E, averaged over the batch.
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
    """Mean KL(P || R) over questions in nats: RePlug's loss, R3's ablation (Shi et al., 2023).

    R is the softmax of the retriever's ``scores`` over a question's m passages. P is the softmax
    of ``targets`` / ``temperature``, the language model's log P(y|q,d), without gradient. A target
    of -inf has probability 0.
    """
    target = jax.nn.log_softmax(jax.lax.stop_gradient(targets) / temperature, axis=1)
    predicted = jax.nn.log_softmax(scores, axis=1)
    weight = jnp.exp(target)
    terms = jnp.where(weight > 0, weight * (jnp.where(weight > 0, target, 0.0) - predicted), 0.0)
    return terms.sum(axis=1).mean()
