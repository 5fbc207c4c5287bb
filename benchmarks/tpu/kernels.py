"""JAX's attention kernels for TPUs beside plain attention, compiled for one chip without a TPU.

    python -m benchmarks.tpu.kernels

Attention of one layer of Qwen2.5-7B on a mesh of model 4: 7 query heads and one key-value head. The
bytes of a kernel are those of its arguments and results; what it skips at run time, such as slots
that no text has reached, is not visible. Needs the environment of `make tpu`.
"""

from __future__ import annotations

import os

from benchmarks.tpu.chips import ENVIRONMENT, Slice

if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)  # before JAX is used

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from benchmarks.tpu.hlo import program_cost
from jaxrag.models.decoder.network import attention_weights, weighted_values

HEADS, FEATURES, PAGE = 7, 128, 128


def plain(q: Any, keys: Any, values: Any, positions: Any) -> Any:
    """As in `jaxrag.models.decoder.network`, over all slots."""
    where = jnp.arange(values.shape[2]) <= positions[..., None]
    weights = attention_weights(q, keys, where=where, scale=1.0, cap=0.0)
    return weighted_values((weights, values))


def paged(q: Any, keys: Any, values: Any, lengths: Any, pages: Any) -> Any:
    """A token of each row, over the slots in use."""
    return paged_attention(q, keys, values, lengths, pages, pages_per_compute_block=4)


def splashed(q: Any, keys: Any, values: Any, of_queries: Any, of_slots: Any) -> Any:
    """A chunk of each row over the slots before it, which segments name."""
    mask = masks.MultiHeadMask([masks.FullMask((q.shape[2], keys.shape[1]))] * HEADS)
    kernel = splash.make_splash_mqa_single_device(mask)

    def row(q: Any, keys: Any, values: Any, a: Any, b: Any) -> Any:
        return kernel(q, keys, values, segment_ids=splash.SegmentIds(a, b))

    return jax.vmap(row)(q, keys, values, of_queries, of_slots)


def measure(name: str, function: Callable[..., Any], *arguments: Any) -> None:
    """Prints bytes of HBM and temporaries of a compiled function."""
    compiled = jax.jit(function).lower(*arguments).compile()
    analysis: Any = compiled.memory_analysis()
    moved = program_cost(compiled.as_text() or "").hbm
    temporary = analysis.temp_size_in_bytes
    print(f"{name}: HBM {moved / 1e6:.1f} MB, temporaries {temporary / 1e6:.1f} MB")


def main() -> None:
    """Compiles plain attention and the kernels."""
    on = Slice("v5e:2x4").place()

    def array(*shape: int, dtype: Any = jnp.bfloat16) -> Any:
        return on.array(shape, dtype)

    def numbers(*shape: int) -> Any:
        return array(*shape, dtype=jnp.int32)

    for rows, chunk, slots in ((128, 1, 1024), (16, 128, 1024), (16, 128, 4096)):
        sizes, e = f"{rows} x {chunk}, {slots:,} slots", FEATURES
        keys, values = array(rows, 1, e, slots), array(rows, 1, slots, e)
        measure(f"plain {sizes}", plain, array(rows, chunk, HEADS, e), keys, values,
                numbers(rows, chunk))  # fmt: skip
        if chunk == 1:
            pages = rows * slots // PAGE
            held = array(1, pages, PAGE, e)
            measure(f"paged {sizes}", paged, array(rows, HEADS, e), held, held, numbers(rows),
                    numbers(rows, slots // PAGE))  # fmt: skip
        else:
            held = array(rows, slots, e)
            measure(f"splash {sizes}", splashed, array(rows, HEADS, chunk, e), held, held,
                    numbers(rows, chunk), numbers(rows, slots))  # fmt: skip


if __name__ == "__main__":
    main()
