"""Contexts and rewards drawn by NumPy: JAX compiles a program for each shape, half a second."""

import numpy as np


def normal(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def uniform(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of [0, 1)."""
    return np.random.default_rng(seed).random(shape, np.float32)
