"""What all settings that name a checkpoint share."""

from __future__ import annotations

from typing import Literal

DType = Literal["", "float32", "bfloat16"]
"""What is computed in; "" is float32 on CPUs and bfloat16 on accelerators."""


def short_name(checkpoint: str) -> str:
    """The part of a checkpoint's specification that tables show."""
    return checkpoint.rpartition(":")[2].rpartition("/")[2]
