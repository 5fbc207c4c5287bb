"""Explains a match of SiDR by the tokens of the vocabulary and their shares of the score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.retrieval.sidr.semi_parametric import SidrIndex
from jaxrag.types import Passage


class Term(NamedTuple):
    """A token's term in a score.

    Attributes:
      token: as the tokenizer writes it; may be in neither text.
      query, passage: its weights, whose product is the term.
      share: the term divided by the score.
      in_query, in_passage: whether the texts, cut to their lengths, contain it.
    """

    token: str
    query: float
    passage: float
    share: float
    in_query: bool
    in_passage: bool


class Match(NamedTuple):
    """Why a passage was found for a question.

    ``score`` is the sum of all terms; ``terms`` are those above 0, largest first.
    """

    question: str
    passage: Passage
    score: float
    terms: tuple[Term, ...]


def explain(index: SidrIndex, question: str, rows: Sequence[int]) -> list[Match]:
    """The terms of the scores by which ``index`` orders the passages at ``rows`` for a question.

    Weights are the factors in the search's score, and stored vectors as stored.
    """
    encoder = index.encoder
    ask = encoder.token_vectors if index.search == "alpha" else encoder.embed
    query = ask([question])[0].astype(np.float64)
    in_query = encoder.token_vectors([question])[0] > 0
    passages = index.passages.get(list(rows))
    weights = _passage_weights(index, passages, rows)
    in_passage = weights > 0 if index.search == "beta" else encoder.passage_bags(passages)
    matches = []
    for i, passage in enumerate(passages):
        products = query * weights[i]
        score = float(products.sum())
        ids = np.argsort(-products, kind="stable")[: np.count_nonzero(products > 0)]
        names = encoder.tokenizer.convert_ids_to_tokens((ids + encoder.module.first).tolist())
        columns = query[ids], weights[i, ids], products[ids], in_query[ids], in_passage[i, ids]
        terms = tuple(
            Term(name, q, p, product / score, *present)
            for name, q, p, product, *present in zip(
                names, *(column.tolist() for column in columns), strict=True
            )
        )
        matches.append(Match(question, passage, score, terms))
    return matches


def _passage_weights(
    index: SidrIndex, passages: Sequence[Passage], rows: Sequence[int]
) -> Float[np.ndarray, "n v"]:
    """Passage weights as the search uses them, float64."""
    dense = np.zeros((len(passages), index.encoder.dimension + 1))
    if index.search == "beta":
        for line, ids in zip(dense, index.index.tokens(rows), strict=True):  # type: ignore[union-attr]
            line[ids] = 1.0
    elif index.search == "late":
        sparse = index.encoder.embed_passages(passages)
        np.put_along_axis(dense, sparse.ids.astype(np.int64), sparse.values, axis=1)
    else:
        ids, values = index.index.vectors(rows)  # type: ignore[union-attr]
        np.put_along_axis(dense, ids.astype(np.int64), values, axis=1)
    return dense[:, :-1]  # padding is in the last column
