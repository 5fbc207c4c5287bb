"""A small SiDR with random weights, and batches of random texts for it."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.methods.r3.contrastive import ContrastiveBatch, Text
from jaxrag.models.bert.sidr import SidrNetwork, load_towers
from jaxrag.models.bert.towers import Towers
from tests.models.bert import small_bert

FIRST = 4
BERT = small_bert.BERT | {"num_hidden_layers": 1}  # compiles in half the time


def towers(directory: Path, *, shared: bool = False, seed: int = 0) -> tuple[SidrNetwork, Towers]:
    path = small_bert.write(directory / f"bert-{seed}", BERT, classifier=False, seed=seed)
    module, params = load_towers(path, dtype=jnp.dtype("float32"), shared=shared, first=FIRST)
    # random weights of size 0.3 give logits of size 10: too steep for a test of gradients
    return module, jax.tree.map(lambda x: x * 0.4, params)


def text(rows: int, width: int, random: np.random.Generator) -> Text:
    lengths = random.integers(1, width + 1, rows).astype(np.int32)
    ids = random.integers(1, BERT["vocab_size"], (rows, width)).astype(np.int32)
    return Text(np.where(np.arange(width) < lengths[:, None], ids, 0).astype(np.int32), lengths)


def batch(n: int, m: int, seed: int = 0) -> ContrastiveBatch:
    random = np.random.default_rng(seed)
    targets = -random.exponential(3.0, (n, m)).astype(np.float32)
    queries, passages = text(n, 8, random), text(n * m, 16, random)
    of_each = Text(*(array.reshape(n, m, *array.shape[1:]) for array in passages))
    return ContrastiveBatch(queries, of_each, targets)


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])
