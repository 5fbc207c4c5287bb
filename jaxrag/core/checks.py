"""Checks of settings that name the field, its value and what is allowed."""

from __future__ import annotations

from typing import Any, get_args

from jaxrag.types import InputError


def check_choices(settings: Any, **literals: Any) -> None:
    """Checks that fields have a value of their ``Literal`` type.

    Raises:
      InputError: a field has another value.
    """
    for name, literal in literals.items():
        if (value := getattr(settings, name)) not in get_args(literal):
            raise InputError(f"{name} is {value!r}; allowed: {', '.join(get_args(literal))}.")


def check_limits(**limits: int) -> None:
    """Checks that limits are at least 1; keywords are the names of the settings.

    Raises:
      InputError: a value is less.
    """
    for name, limit in limits.items():
        if limit < 1:
            raise InputError(f"{name} is {limit}; it must be at least 1.")


def check_share(**shares: float) -> None:
    """Checks that shares are at least 0 and below 1; keywords are the names of the settings.

    Raises:
      InputError: a value is not.
    """
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise InputError(f"{name} is {share}; it must be at least 0 and below 1.")
