"""A small SiDR of two towers with a tokenizer of whole words, and its vectors in float64."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.models.bert.sidr import SidrNetwork, load_towers, write_sidr
from jaxrag.models.bert.towers import Towers
from jaxrag.models.checkpoint.files import read_tensors
from jaxrag.types import Passage
from tests.models.bert import small_bert
from tests.models.bert.small_bert import WORDS
from tests.models.bert.test_sidr import FIRST, reference

# as many words as the tokenizer knows, and a layer less to compile
BERT = small_bert.BERT | {"vocab_size": 4 + len(WORDS), "num_hidden_layers": 1}
DIMENSION = BERT["vocab_size"] - FIRST


def parts(
    directory: Path, *, shared: bool = False, seed: int = 0
) -> tuple[Path, SidrNetwork, Towers]:
    """The BERT that training begins with, and parameters as training might leave them."""
    bert = small_bert.write(directory / f"bert-{seed}", BERT, classifier=False, seed=seed)
    module, params = load_towers(bert, dtype=jnp.dtype("float32"), shared=shared, first=FIRST)
    random = np.random.default_rng(seed)

    def moved(x: jax.Array) -> np.ndarray:
        return np.asarray(x * 0.5 + random.normal(0, 0.1, x.shape), np.float32)

    return bert, module, jax.tree.map(moved, params)


def write(directory: Path, *, shared: bool = False, seed: int = 0) -> Path:
    """The directory of a trained SiDR."""
    bert, module, params = parts(directory, shared=shared, seed=seed)
    return write_sidr(directory / f"sidr-{seed}", module, params, begun_with=bert)


def tokens(text: str) -> list[int]:
    return small_bert.tokenizer(BERT)(text).input_ids


def vector(tower: Path, ids: list[int]) -> np.ndarray:
    """E(x) in float64, nothing left out."""
    row = np.array([ids])
    segments, where = np.zeros_like(row), np.ones(row.shape, bool)
    return reference(dict(read_tensors(tower)), row, segments, where, BERT)[0]


def own(ids: list[int]) -> np.ndarray:
    """T(x)."""
    return np.isin(np.arange(DIMENSION) + FIRST, ids).astype(np.float64)


def texts(count: int, *, longest: int = 12, seed: int = 0) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, longest))) for _ in range(count)]


def passages(count: int, *, seed: int = 1) -> list[Passage]:
    """Every third without a title."""
    bodies, heads = texts(count, seed=seed), texts(count, longest=4, seed=seed + 1)
    titles = [head if i % 3 else "" for i, head in enumerate(heads)]
    return [Passage(f"p{i}", titles[i], body) for i, body in enumerate(bodies)]


def dense(sparse, dimension: int = DIMENSION) -> np.ndarray:
    """Sparse vectors written out [n v]."""
    full = np.zeros((len(sparse.ids), dimension + 1))
    np.put_along_axis(full, np.asarray(sparse.ids, np.int64), sparse.values, axis=1)
    return full[:, :dimension]
