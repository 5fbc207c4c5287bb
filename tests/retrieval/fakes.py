"""A corpus in memory and an encoder without weights, for tests of indexes."""

import hashlib
import json
from itertools import islice

import numpy as np

from jaxrag.retrieval.dense.matrix import open_matrix, write_matrix
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens, write_bag_of_tokens
from jaxrag.types import Passage


def build_matrix(passages, encoder, directory, **sizes):
    """`write_matrix`, opened."""
    write_matrix(passages, encoder, directory, **sizes)
    return open_matrix(directory, passages, encoder, verify=False)


def build_bag_of_tokens(passages, tokenizer, directory, **sizes):
    """`write_bag_of_tokens`, opened."""
    write_bag_of_tokens(passages, tokenizer, directory, **sizes)
    return BagOfTokens.open(directory, passages, tokenizer, verify=False)


def embed_passages(encoder, passages):
    """The vectors of passages in one array."""
    return np.concatenate([*encoder.stream_passages(passages)])


def blocks_of(passages, size):
    """Lists of ``size`` passages."""
    passages = iter(passages)
    return iter(lambda: list(islice(passages, size)), [])


class FakePassages:
    """Passages "text 0", "text 1", ...; ``texts`` may say otherwise."""

    def __init__(self, count: int, texts: list[str] | None = None, identity: str = "fake") -> None:
        self.rows = [
            Passage(str(i), "", text)
            for i, text in enumerate(texts or [f"text {i}" for i in range(count)])
        ]
        self.identity = identity

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Passage:
        return self.rows[row]

    def get(self, rows) -> list[Passage]:
        return [self.rows[row] for row in rows]


class FakeEncoder:
    """A text's vector is drawn from its hash; fails on purpose after ``fails_after`` passages.

    It encodes ``block`` passages at a time.
    """

    def __init__(
        self,
        dimension: int = 16,
        name: str = "fake",
        fails_after: float = np.inf,
        block: int = 256,
    ) -> None:
        self.dimension, self.block = dimension, block
        self.identity = json.dumps({"model": name, "pooling": "mean"}, separators=(",", ":"))
        self.fails_after = fails_after
        self.encoded = 0

    def embed(self, texts):
        vectors = np.stack([self._vector(text) for text in texts])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def embed_passages(self, passages):
        if self.encoded + len(passages) > self.fails_after:
            raise RuntimeError("the power went out")
        self.encoded += len(passages)
        return self.embed([passage.text for passage in passages])

    def stream_passages(self, passages):
        return map(self.embed_passages, blocks_of(passages, self.block))

    def _vector(self, text: str) -> np.ndarray:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        return np.random.default_rng(seed).standard_normal(self.dimension, np.float32)


class VectorEncoder:
    """Gives vectors made before; a passage's text is its row, a query's text is "q" and a row.

    A query with the text of a passage has its vector.
    """

    def __init__(self, vectors: np.ndarray, queries: np.ndarray | None = None) -> None:
        self.passage_vectors, self.query_vectors = vectors, queries
        self.dimension = vectors.shape[1]
        self.identity = json.dumps({"vectors": hashlib.sha256(vectors.tobytes()).hexdigest()})

    def embed(self, texts):
        return np.stack(
            [
                self.query_vectors[int(text[1:])]
                if text.startswith("q")
                else self.passage_vectors[int(text)]
                for text in texts
            ]
        )

    def stream_passages(self, passages):
        for some in blocks_of(passages, 256):
            yield self.passage_vectors[[int(passage.text) for passage in some]]


def numbered(count: int) -> FakePassages:
    """The corpus of a VectorEncoder."""
    return FakePassages(count, [str(i) for i in range(count)])
