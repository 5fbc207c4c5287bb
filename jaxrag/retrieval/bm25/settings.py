"""Settings of BM25."""

from __future__ import annotations

import dataclasses

from jaxrag.core.checks import check_range


@dataclasses.dataclass(frozen=True)
class Bm25Settings:
    """Settings of a BM25 index; the defaults are near those of Anserini.

    Words are runs of two or more letters, digits and underscores, in lower case; in scripts without
    blanks, characters and pairs of them (see `split_words`). A passage that shares no word with the
    query is not found. A word of f of the n passages weighs idf = log(1 + (n - f + 1/2) / (f +
    1/2)), as in Lucene. The index has no vectors, so AIS cannot select from it.

    Attributes:
      k1: saturation of a word's frequency; at 0, further occurrences add nothing.
      b: penalty of long passages, 0 to 1.
      stopwords: words left out: "english" (Lucene's 33), "english_plus" (180), another language of
        bm25s, or "none".
      stemmer: Snowball stemmer: "porter", "english", another language, or "none".
    """

    k1: float = 0.9
    b: float = 0.4
    stopwords: str = "english"
    stemmer: str = "porter"

    def __post_init__(self) -> None:
        check_range(k1=self.k1)
        check_range(1, b=self.b)
