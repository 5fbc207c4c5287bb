"""Values of a config, which may be anyone's: checked before anything is made of them."""

from __future__ import annotations

import functools
import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jaxrag.types import InputError

LAYERS, WIDTH, HEAD = 256, 1 << 20, 1 << 13
"""Most layers, features of a token and of a head; published models have up to 126, 53,248, 576."""

_NAMED = 65_536  # of "num_labels" and the like, for each of which transformers makes something
_WRONG = (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, IndexError)
_Config = TypeVar("_Config")


def integer(
    config: Mapping[str, Any],
    name: str,
    source: object,
    default: Any = None,
    *,
    least: int = 1,
    most: int = 2**31 - 1,
) -> int:
    """The integer ``name`` of a config; InputError naming ``source`` if it is out of range."""
    value = config.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise InputError(
            f"{source}: {name} is {reprlib.repr(value)}; it must be an integer from {least} to "
            f"{most:,}."
        )
    return value


def number(
    config: Mapping[str, Any], name: str, source: object, default: Any = None, *, zero: bool = False
) -> float:
    """A positive number of a config, or ``zero``; InputError naming ``source`` for another."""
    value = config.get(name, default)
    if type(value) in (int, float) and math.isfinite(value) and (value > 0 or (zero and not value)):
        return float(value)
    allowed = "0 or more" if zero else "a positive number"
    raise InputError(f"{source}: {name} is {reprlib.repr(value)}; it must be {allowed}.")


def flag(config: Mapping[str, Any], name: str, source: object, default: bool) -> bool:
    """A true or false of a config; InputError naming ``source`` for anything else but null."""
    value = default if config.get(name) is None else config[name]
    if value not in (True, False):
        raise InputError(f"{source}: {name} is {reprlib.repr(value)}; it must be true or false.")
    return bool(value)


def check_sizes(config: Any, source: object, name: str = "") -> None:
    """InputError, naming ``source``, for a number, also a nested one, infinite or enormous."""
    if isinstance(config, (dict, list)):
        pairs = config.items() if isinstance(config, dict) else ((name, value) for value in config)
        for key, value in pairs:
            check_sizes(value, source, str(key))
    elif isinstance(config, float) and not math.isfinite(config):
        raise InputError(f"{source}: {name} is {config}; it must be a finite number.")
    elif type(config) is int and abs(config) > (_NAMED if name.startswith("num_") else 10**40):
        raise InputError(f"{source}: {name} is {config:.3g}, which is no model's.")


def readable(read: Callable[..., _Config]) -> Callable[..., _Config]:
    """A function of a config and its ``source`` that fails with `InputError` alone."""

    @functools.wraps(read)
    def checked(config: Mapping[str, Any], *, source: object) -> _Config:
        try:
            return read(config, source=source)
        except InputError:
            raise
        except _WRONG as error:
            raise InputError(
                f"{source}: a value of its config is of another type or size than it must be "
                f"({type(error).__name__}: {str(error)[:200]})."
            ) from error

    return checked
