"""DPR's two networks, in training and as checkpoints (Karpukhin et al. 2020).

The vector of a text is the first token's last hidden state, not normalised; relevance is the inner
product.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.bert.checkpoint import BUFFERS, HEADS, modern_names, parameters, read_bert_config
from jaxrag.models.bert.network import BertEncoder, cls_pool
from jaxrag.models.bert.towers import SIDES, Towers, has_towers, tokenizer_path
from jaxrag.models.checkpoint.files import (
    read_config,
    read_tensors,
    replace_directory,
    write_checkpoint,
)
from jaxrag.models.parameters import to_numpy
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError


class DprNetwork(BertEncoder):
    """The first token's last hidden state of each text, in float32."""

    def __call__(
        self, ids: Int[Array, "b t"], segments: Int[Array, "b t"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b d"]:
        return cls_pool(super().__call__(ids, segments, where=where))


def load_dpr(path: Path, *, dtype: jnp.dtype) -> tuple[DprNetwork, Towers]:
    """The network and float32 parameters of both towers.

    Args:
      path: directories "query" and "passage", as `write_dpr` makes them; or a BERT, from which both
        towers begin.
      dtype: of computation.

    Raises:
      InputError: it is not a BERT, is incomplete, or the towers differ in their settings.
    """
    if not has_towers(path):
        module, params = _tower(path)
        return module.clone(dtype=dtype), {"query": params, "passage": params}
    (module, query), (other, passage) = (_tower(path / side) for side in SIDES)
    if module != other:
        raise InputError(f"{path}: the towers for questions and passages differ in their settings.")
    return module.clone(dtype=dtype), {"query": query, "passage": passage}


def _tower(path: Path) -> tuple[DprNetwork, dict[str, Any]]:
    config = read_bert_config(read_config(path), source=path)
    module = DprNetwork(config, jnp.dtype("float32"))
    tensors = modern_names(read_tensors(path, layers=config.num_hidden_layers), config.family)
    return module, parameters(module, tensors, path, ignore=(BUFFERS, *HEADS))


def write_dpr(directory: Path, params: Towers, *, begun_with: Path) -> Path:
    """Writes both towers as BERTs, for `load_dpr` and Hugging Face, atomically.

    Args:
      directory: replaced if it exists.
      params: of its towers.
      begun_with: the checkpoint whose config and tokenizer are copied.

    Raises:
      InputError: it cannot be written, such as on a full disk.
    """
    source = tokenizer_path(begun_with)
    config, tokenizer = read_config(source), load_tokenizer(source)
    with replace_directory(directory) as partial:
        for side in SIDES:
            tokenizer.save_pretrained(partial / side)
            write_checkpoint(partial / side, config, to_numpy(params[side]))
    return Path(directory).absolute()
