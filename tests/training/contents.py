"""The bytes of parameters and states."""

import hashlib
from typing import Any

import numpy as np

from jaxrag.models.parameters import flatten


def digest_of(tree: Any) -> str:
    """SHA-256 of the names, shapes, dtypes and bytes of a tree's arrays."""
    digest = hashlib.sha256()
    for name, array in sorted(flatten(tree).items()):
        values = np.asarray(array)
        digest.update(f"{name} {values.shape} {values.dtype}".encode() + values.tobytes())
    return digest.hexdigest()
