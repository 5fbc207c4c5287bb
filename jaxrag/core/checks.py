"""Checks of settings; an error names the field, its value and what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from jaxrag.types import InputError


def check_choices(settings: Any, **literals: Any) -> None:
    """InputError if a field has no value of its ``Literal`` type."""
    for name, literal in literals.items():
        if (value := getattr(settings, name)) not in get_args(literal):
            raise InputError(f"{name} is {value!r}; allowed: {', '.join(get_args(literal))}.")


def check_limits(**limits: int) -> None:
    """InputError for limits, named as their settings, below 1."""
    for name, limit in limits.items():
        if limit < 1:
            raise InputError(f"{name} is {limit}; it must be at least 1.")


def check_positive(**values: float) -> None:
    """InputError for numbers, named as their settings, that are not finite or not above 0."""
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise InputError(f"{name} is {value}; it must be above 0 and finite.")


def check_range(high: float = math.inf, /, **values: float) -> None:
    """InputError for numbers, named as their settings, not finite or not from 0 to ``high``."""
    allowed = f"from 0 to {high:g}" if high < math.inf else "0 or more"
    for name, value in values.items():
        if not (0 <= value <= high and value < math.inf):
            raise InputError(f"{name} is {value}; it must be {allowed}.")


def check_share(**shares: float) -> None:
    """InputError for shares, named as their settings, that are not at least 0 and below 1."""
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise InputError(f"{name} is {share}; it must be at least 0 and below 1.")


def check_local(paths: Mapping[str, str | Path]) -> None:
    """InputError for paths of other file systems, such as gs://bucket, by their settings' names."""
    for name, path in paths.items():
        # pathlib makes gs:/ of gs://, and absolute() puts the working directory before it
        if re.search("(^|/)[a-zA-Z][a-zA-Z0-9+.-]+:/", str(path)):
            raise InputError(
                f"{name} is {str(path)!r}, which is not a path of this machine: mount it as a "
                "directory (as gcsfuse, mountpoint-s3 and the NFS gateway of HDFS do) or copy it, "
                "and give that path."
            )
