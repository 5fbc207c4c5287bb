"""SiDR's parameters: trained ones, or a BERT checkpoint to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrag.models.bert_checkpoint import BUFFERS, HEADS, modern_names, parameters, read_bert_config
from jaxrag.models.checkpoint import read_config, read_tensors
from jaxrag.models.sidr import Sidr
from jaxrag.types import InputError


def load_sidr(
    path: Path, *, dtype: jnp.dtype, first: int = 999, masked: bool = True
) -> tuple[Sidr, dict[str, Any]]:
    """A tower and its parameters; of a plain BERT the last norm's are 1 and 0, as training begins.

    Args:
      path: a checkpoint's directory.
      dtype: what is computed in.
      first, masked: as in `Sidr`.

    Raises:
      InputError: if it is no BERT checkpoint, incomplete, or does not fit its config.
    """
    config = read_bert_config(read_config(path), source=path)
    if config.family != "bert":
        raise InputError(f"{path}: SiDR is built on BERT, this is {config.family!r}.")
    if not 0 <= first < config.vocab_size:
        raise InputError(
            f"{path}: first is {first}, but the vocabulary has {config.vocab_size} tokens; give "
            "the id of the first token that is one of words."
        )
    tensors = modern_names(read_tensors(path), config.family, body="bert.")
    if "norm.weight" not in tensors:
        tensors["norm.weight"] = np.ones(config.hidden_size, np.float32)
        tensors["norm.bias"] = np.zeros(config.hidden_size, np.float32)
    module = Sidr(config, dtype, first, masked)
    ignore = (BUFFERS, *HEADS, *(rf"bert\.{head}" for head in HEADS))
    return module, parameters(module, tensors, path, ignore=ignore)
