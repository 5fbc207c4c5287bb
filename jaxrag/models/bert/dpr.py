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
from jaxrag.models.bert.towers import Towers, has_towers, load_both
from jaxrag.models.checkpoint.files import read_config, read_tensors


class DprNetwork(BertEncoder):
    """The first token's last hidden state of each text, in float32."""

    def __call__(
        self, ids: Int[Array, "b t"], segments: Int[Array, "b t"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b d"]:
        return cls_pool(super().__call__(ids, segments, where=where))


def load_dpr(path: Path, *, dtype: jnp.dtype) -> tuple[DprNetwork, Towers]:
    """The network, computing in ``dtype``, and float32 parameters of both towers.

    Both begin with the BERT at ``path``, unless `write_towers` made it. InputError if it is no
    BERT, is incomplete, or its towers differ in their settings.
    """
    if not has_towers(path):
        module, params = _tower(path)
        return module.clone(dtype=dtype), {"query": params, "passage": params}
    module, towers = load_both(path, _tower)
    return module.clone(dtype=dtype), towers


def _tower(path: Path) -> tuple[DprNetwork, dict[str, Any]]:
    config = read_bert_config(read_config(path), source=path)
    module = DprNetwork(config, jnp.dtype("float32"))
    tensors = modern_names(read_tensors(path, layers=config.num_hidden_layers), config.family)
    return module, parameters(module, tensors, path, ignore=(BUFFERS, *HEADS))
