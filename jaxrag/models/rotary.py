"""Rotary positions (Su et al., 2021, RoFormer), of the decoders and of Nomic's encoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Rotation(NamedTuple):
    """Cosines and sines of the angles by which each token's queries and keys are rotated."""

    cos: Float[Array, "b t 1 n"]
    sin: Float[Array, "b t 1 n"]


def rotation_of(
    positions: Int[Array, "b t"],
    frequencies: Sequence[float] | Float[Array, " n"],
    scale: float = 1,
) -> Rotation:
    """Cosines and sines of position * frequency (radians), times ``scale``, in float32."""
    angles = positions[:, :, None, None].astype(jnp.float32) * jnp.asarray(frequencies, jnp.float32)
    return Rotation(_once(jnp.cos(angles) * scale), _once(jnp.sin(angles) * scale))


def rotate(x: Float[Array, "b t h d"], rotation: Rotation) -> Float[Array, "b t h d"]:
    """Rotates features i and i + n of each head, in float32; those from 2 n on stay."""
    cos, sin = rotation
    n = cos.shape[-1]
    first, second, rest = jnp.split(x.astype(jnp.float32), (n, 2 * n), axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin, rest]
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def _once(x: Float[Array, "b t h n"]) -> Float[Array, "b t h n"]:
    """Returns x; on CPUs, keeps XLA from computing it again in every layer and for every head.

    XLA's CPU compiler does not fuse a matrix product into its consumers, so x is multiplied by the
    identity matrix. Without this, cosines and sines took 8 % of a prefill of SmolLM2-135M.
    """

    def times_one(x: Float[Array, "b t h n"]) -> Float[Array, "b t h n"]:
        identity = jnp.eye(x.shape[-1], dtype=x.dtype)
        return jnp.einsum("bthn,nm->bthm", x, identity, precision="highest")

    return jax.lax.platform_dependent(x, cpu=times_one, default=lambda x: x)
