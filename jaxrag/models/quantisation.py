"""Matrices in eight bits: W = diag(s) Q with integers Q from -127 to 127 and a scale for each row.

A row is an output channel of a layer, or a token of an embedding table; its scale is its largest
absolute value / 127. Layers multiply Q in the dtype of the activations and apply the scales to the
product. (The baseline of Dettmers et al., 2022, "LLM.int8()", section 2.1, for weights alone.)
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float, Int8

from jaxrag.types import InputError

Quantization = Literal["", "int8"]
"""How matrices are held in settings; "" means in the dtype of computation."""

LARGEST = 127
"""Largest absolute integer; -128 is not used, so that the scheme is symmetric."""

_ROWS = 1024  # quantised at once, so that a float32 copy of a large table is never held


def check_quantization(name: Any) -> None:
    """Raises InputError unless ``name`` is a `Quantization`."""
    if name not in get_args(Quantization):
        raise InputError(
            f"quantization is {name!r}; the local engine has 'int8', or '' for none. (Methods of "
            "vLLM are settings of its engine.)"
        )


class Quantised(NamedTuple):
    """Integers [o i] and the scale of each row [o], float32."""

    weight: Int8[np.ndarray, "o i"]
    scale: Float[np.ndarray, " o"]


def quantise(weight: Float[np.ndarray, "o i"], name: str = "the matrix") -> Quantised:
    """Rounds each row to multiples of its scale, 1 for zeros; InputError if one is not finite."""
    integers = np.empty(weight.shape, np.int8)
    scales = np.ones(len(weight), np.float32)
    for start in range(0, len(weight), _ROWS):
        rows = slice(start, start + _ROWS)
        part = np.asarray(weight[rows], np.float32)
        largest = np.abs(part).max(axis=1, initial=0.0)
        if not np.isfinite(largest).all():
            raise InputError(
                f"{name} holds NaN or infinite numbers and cannot be quantised: the checkpoint is "
                "damaged; get it again."
            )
        np.divide(largest, LARGEST, out=scales[rows], where=largest > 0)
        # a scale near the least float32 is itself rounded, by which a quotient may exceed 127
        multiples = np.clip(np.rint(part / scales[rows, None]), -LARGEST, LARGEST)
        integers[rows] = multiples.astype(np.int8)
    return Quantised(integers, scales)
