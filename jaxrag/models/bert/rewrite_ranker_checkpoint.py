"""Rankers on disk: trained ones with their tokenizer, or a BERT checkpoint to begin with."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict

from jaxrag.models.bert.checkpoint import BUFFERS, HEADS, modern_names, parameters, read_bert_config
from jaxrag.models.bert.network import BertConfig
from jaxrag.models.bert.rewrite_ranker import Pooling, RankerNetwork
from jaxrag.models.checkpoint.files import read_config, read_tensors, write_checkpoint
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError

_KEY = "ranker"  # of config.json, with what a BERT's does not say
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_FLOAT32 = jnp.dtype("float32")
_LEAST = 5  # [CLS] a [SEP] b [SEP]


class LoadedRanker(NamedTuple):
    """A ranker; parameters are float32 whatever is computed in.

    Attributes:
      module: the network.
      params: its parameters.
      max_length: tokens that a pair is cut to.
    """

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
    """A BERT checkpoint with a new head, whose weights are normal with deviation 0.02 (BERT's own).

    Args:
      path: the directory of any BERT; a head or pooler that it has is left aside.
      dtype: what is computed in.
      pooling: see `RankerNetwork`.
      max_length: tokens that a pair is cut to, special ones included.
      seed: of the head's weights.

    Raises:
      InputError: the checkpoint is of another kind or does not fit its config, it is a trained
        ranker already, or a setting will not do.
    """
    whole = read_config(path)
    if _KEY in whole:
        raise InputError(f"{path} is a trained ranker; training begins with a plain BERT.")
    config = read_bert_config(whole, source=path)
    _check(config, pooling, max_length, path)
    body = config.family + "."
    tensors = modern_names(read_tensors(path), config.family, body=body)
    weight = np.random.default_rng(seed).normal(0.0, 0.02, (1, config.hidden_size))
    tensors |= {"classifier.weight": weight, "classifier.bias": np.zeros(1)}
    ignore = (BUFFERS, *HEADS, *(rf"{config.family}\.{head}" for head in HEADS))
    module = RankerNetwork(config, _FLOAT32, pooling)
    return LoadedRanker(
        module.clone(dtype=dtype), parameters(module, tensors, path, ignore=ignore), max_length
    )


def load_ranker(path: Path, *, dtype: jnp.dtype) -> LoadedRanker:
    """A ranker that `write_ranker` wrote.

    Raises:
      InputError: there is none at ``path``, a file is cut short, parameters do not fit, or the
        tokenizer beside them is not the one that it was trained with.
    """
    whole = read_config(path)
    said = whole.get(_KEY)
    if not isinstance(said, dict):
        raise InputError(
            f"{path} is no trained ranker: its config.json has no field {_KEY!r}. Train one from it"
            " with experiments.run and configs/ars.py:train_ranker@SIZE."
        )
    if lacking := [name for name in ("pooling", "max_length", "tokenizer") if name not in said]:
        raise InputError(f"{path}: the field {_KEY!r} of config.json lacks {', '.join(lacking)}.")
    config = read_bert_config(whole, source=path)
    _check(config, said["pooling"], said["max_length"], path)
    if (here := tokenizer_fingerprint(path)) != said["tokenizer"]:
        raise InputError(
            f"{path} was trained with another tokenizer ({str(said['tokenizer'])[:12]}) than the "
            f"one that lies there ({here[:12]}): its scores would mean nothing. Put back "
            f"{' and '.join(_TOKENIZER)} as they were written, or train again."
        )
    module = RankerNetwork(config, _FLOAT32, said["pooling"])
    tensors = read_tensors(path)
    params = parameters(module, tensors, path, ignore=())
    return LoadedRanker(module.clone(dtype=dtype), params, said["max_length"])


def write_ranker(directory: Path, ranker: LoadedRanker, *, begun_with: Path) -> Path:
    """Writes a ranker so that `load_ranker` reads it, all or nothing.

    Args:
      directory: replaced if it is there.
      ranker: network, parameters, and the length that it was trained with.
      begun_with: the checkpoint whose config and tokenizer are taken over.

    Raises:
      InputError: it cannot be written, such as on a full disk.
    """
    arrays: dict[str, Any] = flatten_dict(ranker.params, sep=".")  # type: ignore[assignment]
    tensors = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    config, tokenizer = read_config(begun_with), load_tokenizer(begun_with)
    directory = Path(directory).absolute()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
        tokenizer.save_pretrained(partial)
        said = {
            "pooling": ranker.module.pooling,
            "max_length": ranker.max_length,
            "tokenizer": tokenizer_fingerprint(partial),
        }
        write_checkpoint(partial, {**config, _KEY: said}, tensors)
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {error}") from error
    return directory


def tokenizer_fingerprint(path: Path) -> str:
    """SHA-256 (hex) of the files that say how a checkpoint's tokenizer cuts text.

    Raises:
      InputError: ``path`` lacks one of them.
    """
    whole = hashlib.sha256()
    for name in _TOKENIZER:
        try:
            content = (path / name).read_bytes()
        except OSError as error:
            raise InputError(f"{path} holds no whole tokenizer: {name} cannot be read") from error
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()


def _check(config: BertConfig, pooling: Any, max_length: Any, path: Path) -> None:
    if pooling not in get_args(Pooling):
        raise InputError(f"{path}: pooling is {pooling!r}; allowed are 'cls' and 'mean'.")
    if not isinstance(max_length, int) or not _LEAST <= max_length <= config.max_tokens:
        raise InputError(
            f"{path}: max_length is {max_length!r}; it allows {_LEAST} to {config.max_tokens} "
            "tokens."
        )
