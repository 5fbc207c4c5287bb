"""Rotary position embeddings and the ways that checkpoints stretch them.

Su et al. (2021), RoFormer. A checkpoint names its rotation speeds by a base (``rope_theta``) and,
for contexts longer than it was trained on, a scaling of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxrag.types import InputError


class Rope(NamedTuple):
    """Rotation speeds in radians a position, one for each pair of features; sin and cos are
    multiplied by ``scale``."""

    frequencies: tuple[float, ...]
    scale: float = 1.0


def read_rope(config: Mapping[str, Any], head_dim: int, *, source: object) -> Rope:
    """The rotation speeds that a Hugging Face config describes.

    Both forms are read: ``rope_theta`` with ``rope_scaling``, and ``rope_parameters``, which holds
    both (transformers 5).

    Raises:
      InputError: naming ``source``, for an unknown ``rope_type`` or a lacking setting.
    """
    # transformers lets rope_scaling, where a config has both, win over rope_parameters
    settings = {**(config.get("rope_parameters") or {}), **(config.get("rope_scaling") or {})}
    kind = settings.get("rope_type", settings.get("type", "default"))
    theta = settings.get("rope_theta", config.get("rope_theta") or 10000.0)
    if settings.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) != 1.0:
        raise InputError(f"{source}: partial_rotary_factor other than 1 is not built.")
    plain = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    if kind == "default":
        return Rope(_floats(plain))
    if kind not in _SCALINGS:
        allowed = ", ".join(["default", *_SCALINGS])
        raise InputError(f"{source}: rope_type is {kind!r}; allowed: {allowed}.")
    original = config.get("original_max_position_embeddings", config.get("max_position_embeddings"))
    settings.setdefault("original_max_position_embeddings", original)
    try:
        return _SCALINGS[kind](plain, theta, settings)
    except (KeyError, TypeError) as error:
        raise InputError(f"{source}: rope scaling {kind!r} lacks a setting: {error}.") from error


def _linear(plain: np.ndarray, theta: float, settings: Mapping[str, Any]) -> Rope:
    """Position interpolation, Chen et al. (2023): all rotations slower by one factor."""
    return Rope(_floats(plain / settings["factor"]))


def _llama3(plain: np.ndarray, theta: float, settings: Mapping[str, Any]) -> Rope:
    """Llama 3.1: slow rotations are slowed by a factor, fast ones kept, those between blended.

    Slow and fast by the number of turns that a rotation makes within the original context.
    """
    turns = settings["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return Rope(_floats(plain * kept + plain / settings["factor"] * (1 - kept)))


def _yarn(plain: np.ndarray, theta: float, settings: Mapping[str, Any]) -> Rope:
    """YaRN, Peng et al. (2023): rotations slowed where they make few turns; attention sharpened."""
    factor, original = settings["factor"], settings["original_max_position_embeddings"]

    def feature(turns: float) -> float:
        """The (fractional) pair of features that makes so many turns in the original context."""
        return len(plain) * math.log(original / (turns * 2 * math.pi)) / math.log(theta)

    low = feature(settings.get("beta_fast") or 32)
    high = feature(settings.get("beta_slow") or 1)
    if settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * len(plain) - 1)
    slowed = np.clip((np.arange(len(plain)) - low) / max(high - low, 0.001), 0, 1)
    return Rope(
        _floats(plain / factor * slowed + plain * (1 - slowed)), _yarn_scale(factor, settings)
    )


def _yarn_scale(factor: float, settings: Mapping[str, Any]) -> float:
    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    given = settings.get("attention_factor")
    if given is not None:
        return float(given)
    if settings.get("mscale") and settings.get("mscale_all_dim"):
        return scale(settings["mscale"]) / scale(settings["mscale_all_dim"])
    return scale(1.0)


_SCALINGS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn}


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(map(float, values))


def rotate(
    x: Float[Array, "b t h d"], positions: Int[Array, "b t"], rope: Rope
) -> Float[Array, "b t h d"]:
    """Turns feature i and feature i + d/2 of each head by position times frequency i.

    Computed in float32, given back in the dtype of ``x``.
    """
    frequencies = jnp.asarray(rope.frequencies, jnp.float32)
    angles = positions[:, :, None, None].astype(jnp.float32) * frequencies
    cos, sin = jnp.cos(angles) * rope.scale, jnp.sin(angles) * rope.scale
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x.dtype)
