"""SiDR's four searches, of token sets and of vectors.

docs/methods, "R3: the four searches". A question is E(q), or the set of its tokens T(q); a
passage E(d) or T(d):

============  ==========================================  ======================
search        score                                       needs
============  ==========================================  ======================
parametric    E(q) . E(d)                                 vectors of all passages
alpha         T(q) . E(d)                                 vectors of all passages
beta          E(q) . T(d)                                 tokens of all passages
late          the m best of beta, ordered by E(q) . E(d)  tokens of all passages
============  ==========================================  ======================

Token sets do not change, so beta and late search use one index while the network is trained.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float

from jaxrag.core.checks import check_limits
from jaxrag.core.hashing import canonical
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.sidr.sparse import SparseIndex
from jaxrag.types import InputError, Ranking

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

Search = Literal["late", "beta", "alpha", "parametric"]


@dataclasses.dataclass(frozen=True)
class SidrIndex:
    """A corpus searched with SiDR; a `jaxrag.retrieval.retriever.TextRetriever`.

    Attributes:
      index: of token sets for "late" and "beta", of vectors for "alpha" and "parametric".
      m: number of passages that late search reranks.
      vectors: cache of passages' vectors, for late search.
    """

    identity: str
    encoder: SidrEncoder
    passages: Passages
    index: BagOfTokens | SparseIndex
    search: Search
    m: int
    vectors: PassageVectors

    @classmethod
    def make(
        cls,
        encoder: SidrEncoder,
        passages: Passages,
        index: BagOfTokens | SparseIndex,
        *,
        search: Search = "late",
        m: int = 20,
    ) -> SidrIndex:
        """Checks that search, encoder and index go together; InputError if not."""
        check_limits(m=m)
        if (search in ("late", "beta")) != isinstance(index, BagOfTokens):
            raise InputError(f"{search} search does not go with a {type(index).__name__}.")
        if isinstance(index, BagOfTokens) and index.vocabulary != encoder.dimension:
            raise InputError(
                f"the network has {encoder.dimension:,} tokens of words, the tokenizer that made "
                f"the index {index.vocabulary:,}: they are of different models. Restore the "
                "checkpoint's own tokenizer files."
            )
        deep = {"m": m} if search == "late" else {}
        about = {"search": search, "encoder": encoder.identity, **deep}
        identity = canonical({"sidr": about, "index": index.identity})
        return cls(identity, encoder, passages, index, search, m, PassageVectors(encoder, passages))

    def with_encoder(self, encoder: SidrEncoder, *, m: int | None = None) -> SidrIndex:
        """The index with another encoder, or ``m``; InputError if it holds vectors of its own."""
        if not isinstance(self.index, BagOfTokens):
            raise InputError(f"{self.search} search goes with the encoder that made its vectors.")
        return self.make(encoder, self.passages, self.index, search=self.search, m=m or self.m)

    def search_texts(self, texts: Sequence[str], k: int) -> list[Ranking]:
        """The ``k`` best passages of each question; InputError for ``k`` below 1 or above ``m``."""
        if self.search == "alpha":
            return self.index.search(self.encoder.token_vectors(texts), k)
        if self.search == "late" and not 1 <= k <= self.m:
            raise InputError(
                f"{k} passages are requested, but late search reranks {self.m}: raise m, or "
                f"request 1 to {self.m}."
            )
        queries = self.encoder.embed(texts)
        if self.search != "late":
            return self.index.search(queries, k)
        return late(queries, self.index.search(queries, self.m), self.vectors, k)


class PassageVectors:
    """Cache of E(d) of passages of a corpus, embedded on first use.

    Of more than ``limit``, the least recently used go; 8 bytes an entry.
    """

    def __init__(self, encoder: SidrEncoder, passages: Passages, *, limit: int = 100_000) -> None:
        self._encoder = encoder
        self._passages = passages
        self._limit = limit
        self._kept = collections.OrderedDict[int, tuple[np.ndarray, np.ndarray]]()
        self.embedded = 0

    def scores(
        self, queries: Float[np.ndarray, "q v"], rows: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, " m"]]:
        """E(q) . E(d) of each query with each of its passages, summed in float64, as float32."""
        new = sorted({row for some in rows for row in some} - self._kept.keys())
        vectors = self._encoder.embed_passages(self._passages.get(new))
        self.embedded += len(new)
        self._kept.update(zip(new, zip(*vectors, strict=True), strict=True))
        scores = []
        for query, some in zip(queries, rows, strict=True):
            padded = np.append(query, 0).astype(np.float64)
            scores.append(np.array([self._score(padded, row) for row in some], np.float32))
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)
        return scores

    def _score(self, query: Float[np.ndarray, " v"], row: int) -> float:
        ids, values = self._kept[row]
        self._kept.move_to_end(row)
        return float(np.dot(query[ids], values.astype(np.float64)))


def late(
    queries: Float[np.ndarray, "q v"], rankings: Sequence[Ranking], vectors: PassageVectors, k: int
) -> list[Ranking]:
    """The ``k`` best of each ranking by E(q) . E(d); equal scores in the order of rows."""
    scores = vectors.scores(queries, [ranking.ids for ranking in rankings])
    reranked = []
    for ranking, new in zip(rankings, scores, strict=True):
        order = np.lexsort((np.array(ranking.ids), -new))[:k]
        ids = tuple(ranking.ids[i] for i in order)
        reranked.append(Ranking(ids, tuple(float(new[i]) for i in order)))
    return reranked
