"""Reads the checkpoints of SiDR's authors: both towers in one file, under their own names.

Tensors of questions are below ``encoder_q.``, those of passages below ``encoder_p.``, which may be
missing where one tower serves both. Names below that differ, so a tower is recognised by what it
holds: a BERT, one more layer norm, and perhaps copies of the word embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxrag.models.bert.checkpoint import modern_names
from jaxrag.models.checkpoint.files import read_config, read_tensors
from jaxrag.types import InputError

_PREFIXES = {"query": "encoder_q.", "passage": "encoder_p."}
_WORDS = "embeddings.word_embeddings.weight"
_LAYER = re.compile(r"encoder\.layer\.(\d+)\.")
_BODY = ("embeddings.", "encoder.", "pooler.")
_HEAD_SIZE = 64  # of attention, in every BERT of Devlin et al.


class Released(NamedTuple):
    """A released SiDR.

    Attributes:
      config: config.json of its BERT.
      first: id of the first token of the vocabulary that is used.
      towers: tensors of `SidrNetwork` by name, under "query" and "passage", or under "both".
    """

    config: dict[str, Any]
    first: int
    towers: dict[str, dict[str, np.ndarray]]


def is_released(path: Path) -> bool:
    """Whether the checkpoint at ``path`` is one of the authors'."""
    try:
        names = read_tensors(path)
    except InputError:
        return False  # whoever reads it gets the error
    return any(name.startswith(_PREFIXES["query"]) for name in names)


def released_first(config: Mapping[str, Any], default: int) -> int:
    """The first token id, by the field of the authors' settings."""
    return int(config.get("shift_vocab_num", default))


def read_released(path: Path, *, first: int) -> Released:
    """Reads both towers; ``first`` is used if the settings do not name another.

    InputError for a tower that is incomplete or holds something unknown.
    """
    raw_config, tensors = read_config(path), read_tensors(path)
    first = released_first(raw_config, first)
    parts = {
        side: {name.removeprefix(prefix): name for name in tensors if name.startswith(prefix)}
        for side, prefix in _PREFIXES.items()
    }
    used = {name for part in parts.values() for name in part.values()}
    if surplus := sorted(set(tensors) - used):
        raise InputError(f"{path} holds {surplus[0]!r}, which is of neither tower of a SiDR.")
    towers = {
        side: _tower({new: tensors[old] for new, old in part.items()}, first, f"{path}, {side}")
        for side, part in parts.items()
        if part
    }
    config = bert_settings(raw_config, next(iter(towers.values())))
    return Released(config, first, towers if len(towers) == 2 else {"both": towers["query"]})


def _tower(tensors: Mapping[str, np.ndarray], first: int, source: str) -> dict[str, np.ndarray]:
    """The tensors of one tower under the names of `SidrNetwork`."""
    where = [name.removesuffix(_WORDS) for name in tensors if name.endswith(_WORDS)]
    if len(where) != 1:
        raise InputError(f"{source}: {len(where)} tables {_WORDS!r}; a tower has one.")
    prefixes = tuple(where[0] + part for part in _BODY)
    body = {n.removeprefix(where[0]): t for n, t in tensors.items() if n.startswith(prefixes)}
    renamed = modern_names(body, "bert", body="bert.")
    words = renamed[f"bert.{_WORDS}"]
    for name, tensor in tensors.items():
        if name.startswith(prefixes) or name.endswith("position_ids"):
            continue
        if tensor.shape == words.shape[1:] and name.endswith((".weight", ".bias")):
            kind = f"norm.{name.rpartition('.')[2]}"
            if kind in renamed:
                raise InputError(f"{source}: {name!r} is a second layer norm after the BERT.")
            renamed[kind] = tensor
        elif not any(np.array_equal(tensor, table) for table in (words, words[first:])):
            raise InputError(
                f"{source}: {name!r} {tensor.shape} is neither a layer norm nor the table of word "
                f"embeddings from token {first} on, which are all that SiDR adds to a BERT."
            )
    return renamed


def bert_settings(whole: Mapping[str, Any], tower: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The BERT's config.json: from the checkpoint's, or from a field of it, or by the shapes.

    What no shape tells is BERT's: heads of 64 numbers, gelu, 1e-12 in layer norms.
    """
    for config in (whole, *(value for value in whole.values() if isinstance(value, dict))):
        if "hidden_size" in config and "vocab_size" in config:
            return {**config, "model_type": "bert"}
    words = tower[f"bert.{_WORDS}"]
    layers = {int(match[1]) for name in tower if (match := _LAYER.search(name))}
    rows = {name: len(tower[f"bert.embeddings.{name}_embeddings.weight"])
            for name in ("position", "token_type")}  # fmt: skip
    return {
        "model_type": "bert",
        "vocab_size": words.shape[0],
        "hidden_size": words.shape[1],
        "intermediate_size": len(tower["bert.encoder.layer.0.intermediate.dense.bias"]),
        "num_hidden_layers": len(layers),
        "num_attention_heads": words.shape[1] // _HEAD_SIZE,
        "max_position_embeddings": rows["position"],
        "type_vocab_size": rows["token_type"],
    }
