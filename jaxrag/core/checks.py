"""Checks of settings; an error names the field, its value and what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from jaxrag.types import InputError


def check_choices(settings: Any, **literals: Any) -> None:
    """Checks that each field has a value of its ``Literal`` type.

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


def check_positive(**values: float) -> None:
    """Checks that numbers are finite and above 0; keywords are the names of the settings.

    Raises:
      InputError: a value is not.
    """
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise InputError(f"{name} is {value}; it must be above 0.")


def check_range(high: float = math.inf, /, **values: float) -> None:
    """Checks that numbers are finite and from 0 to ``high``; keywords are names of the settings.

    Raises:
      InputError: a value is not.
    """
    allowed = f"from 0 to {high:g}" if high < math.inf else "0 or more"
    for name, value in values.items():
        if not (0 <= value <= high and value < math.inf):
            raise InputError(f"{name} is {value}; it must be {allowed}.")


def check_share(**shares: float) -> None:
    """Checks that shares are at least 0 and below 1; keywords are the names of the settings.

    Raises:
      InputError: a value is not.
    """
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise InputError(f"{name} is {share}; it must be at least 0 and below 1.")


def check_local(paths: Mapping[str, str | Path]) -> None:
    """Checks that paths, by the names of their settings, are of this machine's file system.

    Raises:
      InputError: one begins with a scheme, as gs://bucket/directory does; it would become a
        directory named "gs:".
    """
    for name, path in paths.items():
        # pathlib makes gs:/ of gs://, and absolute() puts the working directory before it
        if re.search("(^|/)[a-zA-Z][a-zA-Z0-9+.-]+:/", str(path)):
            raise InputError(
                f"{name} is {str(path)!r}, which is not a path of this machine: mount it as a "
                "directory (as gcsfuse, mountpoint-s3 and the NFS gateway of HDFS do) or copy it, "
                "and give that path."
            )
