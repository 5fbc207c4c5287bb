"""Rotary positions: their frequencies, plain or scaled for long texts, from config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxrag.models.checkpoint.config_values import integer, number
from jaxrag.models.decoder.families import Family
from jaxrag.types import InputError


class Rope(NamedTuple):
    """Rotary position embedding (Su et al., 2021, RoFormer).

    ``frequencies`` are radians per position of each rotated pair; ``scale`` multiplies sin and cos.
    """

    frequencies: tuple[float, ...]
    scale: float = 1.0


class _Scaling(NamedTuple):
    """What a rope type is computed from: frequencies without scaling, their base, and settings."""

    plain: np.ndarray
    theta: float
    settings: Mapping[str, Any]
    longest: int


def read_rope(
    config: Mapping[str, Any], family: Family, head_dim: int, *, source: object
) -> tuple[Rope, Rope | None, int]:
    """``rope``, ``long_rope`` and ``short_length`` of `DecoderConfig` from a Hugging Face config.

    Two forms are read: ``rope_theta`` with ``rope_scaling``, and ``rope_parameters``, which holds
    both (transformers 5). InputError, naming ``source``, for an unknown type or an impossible
    setting.
    """
    # where a config has both, rope_scaling takes precedence in transformers, too
    settings = {**(config.get("rope_parameters") or {}), **(config.get("rope_scaling") or {})}
    if nested := [name for name, value in settings.items() if isinstance(value, dict)]:
        raise InputError(f"{source}: rope_parameters of single layer types ({nested[0]}).")
    kind = settings.get("rope_type") or settings.get("type") or "default"
    if family.fused and kind in ("su", "yarn"):
        kind = "longrope"  # what Phi-3's first configs call it
    given = {**_given(config), **_given(settings)}
    theta = number(given, "rope_theta", source, 10000.0)
    rotated = _rotated(config, settings, family, head_dim, source)
    plain = theta ** -(np.arange(0, rotated, 2) / rotated)
    if kind == "default":
        return Rope(_floats(plain)), None, 0
    if kind not in (*_SCALINGS, "longrope"):
        allowed = ", ".join(["default", *_SCALINGS, "longrope"])
        raise InputError(f"{source}: rope_type is {kind!r}; allowed: {allowed}.")
    longest = integer(config, "max_position_embeddings", source)
    if (original := config.get("original_max_position_embeddings")) is not None:
        settings["original_max_position_embeddings"] = original  # transformers' precedence
    settings.setdefault("original_max_position_embeddings", longest)
    scaling = _Scaling(plain, theta, settings, longest)
    try:
        if kind == "longrope":
            return *_longrope(scaling), settings["original_max_position_embeddings"]
        return _SCALINGS[kind](scaling), None, 0
    except (KeyError, TypeError) as error:
        raise InputError(f"{source}: rope scaling {kind!r} lacks the setting {error}.") from error
    except ValueError as error:
        raise InputError(f"{source}: rope scaling {kind!r}: {error}") from error


def _given(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if value is not None}


def _rotated(
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
    family: Family,
    head_dim: int,
    source: object,
) -> int:
    """The number of a head's features that are rotated."""
    share = number({**config, **settings}, "partial_rotary_factor", source, 1.0)
    if share != 1.0 and not family.partial_rotary:
        raise InputError(f"{source}: partial_rotary_factor other than 1 is not supported.")
    rotated = int(head_dim * share)
    if rotated % 2 or not 0 < rotated <= head_dim:
        raise InputError(
            f"{source}: head_dim is {head_dim} and partial_rotary_factor {share}: the rotated "
            f"features, {rotated}, must be an even number within the head."
        )
    return rotated


def _linear(scaling: _Scaling) -> Rope:
    """Position interpolation, Chen et al. (2023): all frequencies divided by a factor."""
    return Rope(_floats(scaling.plain / scaling.settings["factor"]))


def _llama3(scaling: _Scaling) -> Rope:
    """Llama 3.1: low frequencies divided by a factor, high ones kept, others interpolated."""
    plain, settings = scaling.plain, scaling.settings
    turns = settings["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    if not low < high:
        raise ValueError(f"low_freq_factor {low} must be below high_freq_factor {high}.")
    share = np.clip((turns - low) / (high - low), 0, 1)
    return Rope(_floats(plain * share + plain / settings["factor"] * (1 - share)))


def _longrope(scaling: _Scaling) -> tuple[Rope, Rope]:
    """LongRoPE, Ding et al. (2024): each frequency divided by its own factor; attention scaled."""
    settings, original = scaling.settings, scaling.settings["original_max_position_embeddings"]
    scale, factor = settings.get("attention_factor"), settings.get("factor")
    factor = factor or scaling.longest / original
    if scale is None:
        scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    if scales := [name for name in ("short_mscale", "long_mscale") if settings.get(name)]:
        raise ValueError(f"{scales[0]} is not supported.")
    ropes = []
    for name in ("short_factor", "long_factor"):
        divisors = np.asarray(settings[name], np.float64)
        if divisors.shape != scaling.plain.shape or not (divisors > 0).all():
            raise ValueError(
                f"{name} has {divisors.size} numbers; it must have {scaling.plain.size} positive "
                "ones, one for each pair of rotated features."
            )
        ropes.append(Rope(_floats(scaling.plain / divisors), float(scale)))
    return ropes[0], ropes[1]


def _yarn(scaling: _Scaling) -> Rope:
    """YaRN, Peng et al. (2023): low frequencies are divided by a factor; attention is scaled."""
    plain, theta, settings = scaling.plain, scaling.theta, scaling.settings
    factor, original = settings["factor"], settings["original_max_position_embeddings"]

    def feature(turns: float) -> float:
        """The (fractional) feature pair that makes ``turns`` turns in the original context."""
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

    attention_factor = settings.get("attention_factor")
    if attention_factor is not None:
        return float(attention_factor)
    if settings.get("mscale") and settings.get("mscale_all_dim"):
        return scale(settings["mscale"]) / scale(settings["mscale_all_dim"])
    return scale(1.0)


def _floats(values: np.ndarray) -> tuple[float, ...]:
    return tuple(map(float, values))


_SCALINGS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn}
