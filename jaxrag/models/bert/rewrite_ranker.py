"""ARS-RAG's ranker: a BERT that scores a question and a rewrite of it, with its checkpoints.

docs/methods, "ARS-RAG: ranker": S(q_i, Q) is "BERT encoder + classification head, dropout 0.1".
The paper does not say how the pair is encoded; here it is one sequence of two segments, as in a
cross-encoder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.bert.checkpoint import BUFFERS, HEADS, modern_names, parameters, read_bert_config
from jaxrag.models.bert.network import BertConfig, BertEncoder, cls_pool, mean_pool
from jaxrag.models.bert.towers import write_towers
from jaxrag.models.checkpoint.files import read_config, read_tensors
from jaxrag.models.layers import Linear
from jaxrag.models.precision import matmul_precision
from jaxrag.models.tokenizer import check_trained_with
from jaxrag.types import InputError

Pooling = Literal["cls", "mean", "pooler"]
"""The first token's last state; the mean of all tokens' states; or BERT's pooler, a dense layer
with tanh on the first token's state, as in the class for sequence classification of transformers.
"""

_KEY = "ranker"  # field of config.json with the settings that a BERT does not have
_FLOAT32 = jnp.dtype("float32")
_LEAST = 5  # [CLS] a [SEP] b [SEP]


class RankerNetwork(nn.Module):
    """A score [b, 1] for each pair, float32, linear in the pooled last states of an encoder.

    ``dtype`` is of the encoder; ``dropout`` of the encoder in training.
    """

    config: BertConfig
    dtype: Any = jnp.float32
    pooling: Pooling = "cls"
    dropout: float = 0.0

    @nn.compact
    def __call__(
        self,
        ids: Int[Array, "b t"],
        segments: Int[Array, "b t"],
        *,
        where: Bool[Array, "b t"],
        noise: Float[Array, "b d"] | None = None,
    ) -> Float[Array, "b 1"]:
        c = self.config
        dense = self.pooling == "pooler"
        encoder = BertEncoder(c, self.dtype, pooled=dense, dropout=self.dropout, name=c.family)
        states: Any = encoder(ids, segments, where=where)
        if dense:
            pooled = states.astype(jnp.float32)
        else:
            pooled = mean_pool(states, where=where) if self.pooling == "mean" else cls_pool(states)
        pooled = pooled if noise is None else pooled * noise
        with matmul_precision(_FLOAT32):
            return Linear(1, name="classifier")(pooled)


def dropout_noise(key: jax.Array, shape: tuple[int, ...], rate: float) -> Float[Array, "*shape"]:
    """Factors of inverted dropout (Srivastava et al. 2014): 0 at ``rate``, else 1 / (1 - rate)."""
    survives = jax.random.bernoulli(key, 1.0 - rate, shape)
    return jnp.where(survives, 1.0 / (1.0 - rate), 0.0).astype(jnp.float32)


class LoadedRanker(NamedTuple):
    """A ranker, with float32 parameters; pairs are cut to ``max_length`` tokens."""

    module: RankerNetwork
    params: dict[str, Any]
    max_length: int


def untrained_ranker(
    path: Path,
    *,
    dtype: jnp.dtype,
    pooling: Pooling = "cls",
    max_length: int = 128,
    seed: int = 0,
) -> LoadedRanker:
    """A BERT checkpoint with a new head, drawn from a normal of deviation 0.02 as BERT's own.

    Args:
      path: of a BERT; its heads are ignored, its pooler but for the pooling "pooler".
      dtype: of computation.
      max_length: most tokens of a pair, special ones included.
      seed: of the head's weights.

    InputError for a trained ranker, another model type or an invalid setting.
    """
    raw_config = read_config(path)
    if _KEY in raw_config:
        raise InputError(f"{path} is a trained ranker; training begins with a plain BERT.")
    config = read_bert_config(raw_config, source=path)
    _check(config, pooling, max_length, path)
    body = config.family + "."
    tensors = modern_names(
        read_tensors(path, layers=config.num_hidden_layers), config.family, body=body
    )
    weight = np.random.default_rng(seed).normal(0.0, 0.02, (1, config.hidden_size))
    tensors |= {"classifier.weight": weight, "classifier.bias": np.zeros(1)}
    ignore = (BUFFERS, *HEADS, *(rf"{config.family}\.{head}" for head in HEADS))
    module = RankerNetwork(config, _FLOAT32, pooling)
    if pooling == "pooler" and f"{body}pooler.dense.weight" not in tensors:
        raise InputError(
            f"{path} has no pooler, so pooling 'pooler' would begin with random weights; choose "
            "'cls' or 'mean', or a checkpoint with one."
        )
    params = parameters(module, tensors, path, ignore=ignore)
    return LoadedRanker(module.clone(dtype=dtype), params, max_length)


def load_ranker(path: Path, *, dtype: jnp.dtype) -> LoadedRanker:
    """A ranker of `write_ranker`; InputError if it is damaged or its tokenizer was replaced."""
    raw_config = read_config(path)
    settings = raw_config.get(_KEY)
    if not isinstance(settings, dict):
        raise InputError(
            f"{path} is not a trained ranker: its config.json has no field {_KEY!r}. Train one from"
            " it with jaxrag run and configs/ars.py:train_ranker@SIZE."
        )
    names = ("pooling", "max_length", "tokenizer")
    if missing := [name for name in names if name not in settings]:
        raise InputError(f"{path}: the field {_KEY!r} of config.json lacks {', '.join(missing)}.")
    config = read_bert_config(raw_config, source=path)
    _check(config, settings["pooling"], settings["max_length"], path)
    check_trained_with(path, settings["tokenizer"], results="scores")
    module = RankerNetwork(config, _FLOAT32, settings["pooling"])
    params = parameters(module, read_tensors(path), path, ignore=())
    return LoadedRanker(module.clone(dtype=dtype), params, settings["max_length"])


def write_ranker(directory: Path, ranker: LoadedRanker, *, begun_with: Path) -> Path:
    """Writes a ranker for `load_ranker`, see `jaxrag.models.bert.towers.write_towers`."""
    settings = {"pooling": ranker.module.pooling, "max_length": ranker.max_length}
    params = {"both": ranker.params}
    return write_towers(directory, params, begun_with=begun_with, settings={_KEY: settings})


def _check(config: BertConfig, pooling: Any, max_length: Any, path: Path) -> None:
    if pooling not in get_args(Pooling):
        allowed = ", ".join(map(repr, get_args(Pooling)))
        raise InputError(f"{path}: pooling is {pooling!r}; allowed are {allowed}.")
    if not isinstance(max_length, int) or not _LEAST <= max_length <= config.max_tokens:
        raise InputError(
            f"{path}: max_length is {max_length!r}; it must be from {_LEAST} to "
            f"{config.max_tokens} tokens."
        )
