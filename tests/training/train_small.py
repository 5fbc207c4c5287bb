"""Data, examples and the network of a small SiDR."""

from pathlib import Path

from jaxrag.methods.r3 import supervised_training as sidr
from jaxrag.retrieval.corpus.passages import write_passages
from jaxrag.types import Passage
from tests.methods.r3 import small_sidr
from tests.models.bert import small_bert
from tests.models.bert.small_bert import WORDS

QUESTIONS, PASSAGES = 24, 40


def make(directory: Path) -> None:
    """The data and the network to begin with."""
    texts = [f"{WORDS[i % 18]} {WORDS[i * 5 % 17]} {WORDS[i * 7 % 13]}" for i in range(PASSAGES)]
    write_passages(directory / "passages", (Passage(f"p{i}", "", t) for i, t in enumerate(texts)))
    config = small_sidr.BERT | {"vocab_size": 4 + len(WORDS)}
    small_bert.write(directory / "bert", config, classifier=False)


def examples() -> list[sidr.Example]:
    return [
        sidr.Example(f"{WORDS[i % 18]} {WORDS[i * 5 % 17]}", (i,), tuple(range(30, 30 + i % 5)))
        for i in range(QUESTIONS)
    ]
