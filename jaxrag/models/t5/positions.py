"""Relative positions of T5, put into buckets (Raffel et al., 2020, section 2.1)."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int


def relative_buckets(
    relative: Int[Array, "*n"], *, buckets: int, max_distance: int, causal: bool
) -> Int[Array, "*n"]:
    """The bucket of each relative position, key's minus query's.

    Half of the buckets stand for one distance each, the others for ranges that grow in proportion
    to the distance, the last of them for ``max_distance`` and all beyond. With ``causal``, later
    keys share the bucket of distance 0 (they are hidden anyway); otherwise keys before and after
    have half of the buckets each.

    Args:
      relative: key's position minus query's.
      buckets: how many in all.
      max_distance: where the last begins at the latest.
      causal: whether keys after the query are never looked at.
    """
    one_side = buckets if causal else buckets // 2
    table = jnp.asarray(distance_buckets(one_side, max_distance))
    distance = jnp.maximum(-relative, 0) if causal else jnp.abs(relative)
    bucket = table[jnp.minimum(distance, max_distance)]
    return bucket if causal else bucket + one_side * (relative > 0)


def distance_buckets(buckets: int, max_distance: int) -> Int[np.ndarray, " m"]:
    """The bucket of each distance from 0 to ``max_distance``, int32.

    Computed on the host in float32, as published models had it, so that no device's logarithm moves
    a distance across a border.
    """
    exact = buckets // 2
    distance = np.arange(max_distance + 1)
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    steps = ratio / np.float32(math.log(max_distance / exact)) * np.float32(buckets - exact)
    far = np.minimum(exact + steps.astype(np.int32), buckets - 1)
    return np.where(distance < exact, distance, far).astype(np.int32)
