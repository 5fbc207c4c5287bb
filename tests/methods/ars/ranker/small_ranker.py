"""A small ranker, and questions whose rewrites it can learn to rank.

The first word of a rewrite decides its label: the word's place in `small_bert.WORDS`, by fours.
"""

from pathlib import Path

import numpy as np

from jaxrag.methods.ars.ranker import scorer as rankers
from jaxrag.methods.ars.ranker.data import RankingExample
from jaxrag.retrieval.rerank import CrossEncoderReranker
from tests.models.bert import small_bert
from tests.models.bert.small_bert import WORDS

BERT = small_bert.BERT | {"num_hidden_layers": 1, "vocab_size": 4 + len(WORDS)}


def write(directory: Path) -> Path:
    return small_bert.write(directory / "bert", BERT, classifier=False)


def begin(path: Path, *, seed: int = 0) -> CrossEncoderReranker:
    return rankers.begin(str(path), max_length=16, seed=seed)


def examples(count: int = 12, *, rewrites: int = 4, seed: int = 0) -> list[RankingExample]:
    """Some questions have one rewrite less than the others."""
    random = np.random.default_rng(seed)

    def example(number: int) -> RankingExample:
        drawn = random.choice(len(WORDS), rewrites - number % 2, replace=False)
        second = random.choice(WORDS, len(drawn))
        texts = tuple(f"{WORDS[i]} {word}" for i, word in zip(drawn, second, strict=True))
        return RankingExample(
            f"q{number}",
            f"the {WORDS[number % len(WORDS)]}",
            texts,
            tuple(int(i) // 4 for i in drawn),
        )

    return [example(number) for number in range(count)]
