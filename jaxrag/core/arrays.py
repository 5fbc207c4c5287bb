"""Arrays in files of NumPy's format."""

from __future__ import annotations

import tokenize
from pathlib import Path

import numpy as np

_RAISED = (
    OSError, ValueError, EOFError, SyntaxError, OverflowError, MemoryError, tokenize.TokenError,
)  # fmt: skip


def load_array(path: Path, *, mapped: bool = False) -> np.ndarray:
    """An array of numbers, read or mapped into memory, never unpickled; ValueError for damage."""
    try:
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except _RAISED as error:
        raise ValueError(str(error) or type(error).__name__) from error
