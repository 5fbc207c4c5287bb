"""What a match of SiDR is made of: the tokens of the vocabulary, and what each added to the score.

Every score of SiDR is a sum over tokens of a weight in the question times a weight in the passage
(`jaxrag.retrieval.sidr.semi_parametric`), so its terms tell why a passage was found. Few systems
can be read like this: the weights may be on tokens that neither text holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jaxrag.retrieval import buckets
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.sidr.semi_parametric import SidrIndex
from jaxrag.types import Passage


class Term(NamedTuple):
    """A token's part in a score.

    Attributes:
      token: as the tokenizer writes it.
      query, passage: its weights, whose product it adds.
      share: the product over the score.
      in_query, in_passage: whether the texts hold it, as far as they are read.
    """

    token: str
    query: float
    passage: float
    share: float
    in_query: bool
    in_passage: bool


class Match(NamedTuple):
    """Why a passage was found for a question.

    Attributes:
      question, passage: the texts.
      score: the sum of all terms.
      terms: those above 0, largest first; of equal ones the first of the vocabulary.
    """

    question: str
    passage: Passage
    score: float
    terms: tuple[Term, ...]


def explain(index: SidrIndex, question: str, rows: Sequence[int]) -> list[Match]:
    """The terms of the scores by which ``index`` orders the passages at ``rows`` for a question.

    Weights are those that the search compares: of late search the vectors of both texts, of beta
    the passage's tokens, of alpha the question's, and where vectors are stored what is stored.
    """
    encoder = index.encoder
    ask = encoder.token_vectors if index.search == "alpha" else encoder.embed
    query = ask([question])[0].astype(np.float64)
    asked = encoder.token_vectors([question])[0] > 0
    passages = index.passages.get(list(rows))
    weights = _passage_weights(index, passages, rows)
    texts = [encoder.passage_text(passage) for passage in passages]
    held = weights > 0 if index.search == "beta" else _tokens(encoder, texts)
    return [
        _match(encoder, question, passage, query, weights[i], asked, held[i])
        for i, passage in enumerate(passages)
    ]


def _passage_weights(
    index: SidrIndex, passages: Sequence[Passage], rows: Sequence[int]
) -> Float[np.ndarray, "n v"]:
    """What the search holds of the passages, float64."""
    dense = np.zeros((len(passages), index.encoder.dimension + 1))
    if index.search == "beta":
        for line, ids in zip(dense, index.index.tokens(rows), strict=True):  # type: ignore[union-attr]
            line[ids] = 1.0
    elif index.search == "late":
        found = index.encoder.embed_passages(passages)
        np.put_along_axis(dense, found.ids.astype(np.int64), found.values, axis=1)
    else:
        ids, values = index.index.vectors(rows)  # type: ignore[union-attr]
        np.put_along_axis(dense, ids.astype(np.int64), values, axis=1)
    return dense[:, :-1]  # entries that are none lie in the last column


def _tokens(encoder: SidrEncoder, texts: Sequence[str]) -> Bool[np.ndarray, "n v"]:
    """Which tokens the network reads in passages' texts."""
    held = np.zeros((len(texts), encoder.dimension), np.bool_)
    first = encoder.module.first
    read = buckets.tokenize(encoder.tokenizer, texts, limit=encoder.passage_length)
    for line, text in zip(held, read, strict=True):
        line[[i - first for i in text.ids if i >= first]] = True
    return held


def _match(
    encoder: SidrEncoder,
    question: str,
    passage: Passage,
    query: Float[np.ndarray, " v"],
    weights: Float[np.ndarray, " v"],
    asked: Bool[np.ndarray, " v"],
    held: Bool[np.ndarray, " v"],
) -> Match:
    products = query * weights
    score = float(products.sum())
    places = np.argsort(-products, kind="stable")[: np.count_nonzero(products > 0)]
    names = encoder.tokenizer.convert_ids_to_tokens((places + encoder.module.first).tolist())
    terms = tuple(
        Term(
            str(name),
            float(query[place]),
            float(weights[place]),
            float(products[place]) / score,
            bool(asked[place]),
            bool(held[place]),
        )
        for name, place in zip(names, places, strict=True)
    )
    return Match(question, passage, score, terms)
