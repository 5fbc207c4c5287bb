"""Writes checkpoints in one file or in several, as others publish them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from jaxrag.models.checkpoint import files


def write_checkpoint(
    directory: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    *,
    shards: int = 1,
) -> Path:
    """`files.write_checkpoint`, with an index and so many files if they are more than one."""
    if shards == 1:
        return files.write_checkpoint(directory, config, tensors)
    files.write_checkpoint(directory, config, {})
    (directory / "model.safetensors").unlink()
    names, weight_map = sorted(tensors), {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = names[-(-i * len(names) // shards) : -(-(i + 1) * len(names) // shards)]
        save_file({name: np.ascontiguousarray(tensors[name]) for name in part}, directory / file)
        weight_map |= dict.fromkeys(part, file)
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return directory
