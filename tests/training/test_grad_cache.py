from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh

from jaxrag.training import grad_cache
from jaxrag.types import InputError


def mesh(devices: int) -> Mesh:
    return grad_cache.data_mesh(jax.devices()[:devices])


def embed(params, microbatch):
    return jnp.tanh(microbatch["x"] @ params["w"]), microbatch["x"].sum(1) * params["scale"]


def loss(vectors, whole):
    # depends on all pairs of rows, as a contrastive loss does, and on the rows' order
    first, second = vectors
    scores = first @ first.T + second[:, None] * whole["weight"]
    return jnp.square(jax.nn.log_softmax(scores)).sum() * 0.01


PARAMS = {"w": np.float32(np.random.default_rng(0).normal(size=(5, 3))), "scale": np.float32(0.7)}


def batch(rows: int):
    random = np.random.default_rng(1)
    return {
        "x": random.normal(size=(rows, 5)).astype(np.float32),
        "weight": random.normal(size=rows).astype(np.float32),
    }


def by_pieces(rows: int, microbatch: int, devices: int) -> grad_cache.Gradient:
    here = mesh(devices)
    params = grad_cache.local_arrays(grad_cache.replicate(PARAMS, here), here)
    programs = grad_cache.make_programs(embed, loss, here)
    found = grad_cache.make_gradient(programs, here)(
        params, grad_cache.shard_microbatches(batch(rows), microbatch, here), rows
    )
    for other in zip(*found, strict=True):  # all devices have the same
        jax.tree.map(np.testing.assert_array_equal, other, (found.loss[0], found.gradients[0]))
    return jax.tree.map(np.asarray, grad_cache.Gradient(*(local[0] for local in found)))


@pytest.mark.parametrize("microbatch", [1, 4, 16])
def test_the_gradient_equals_that_of_the_whole_batch(microbatch: int) -> None:
    whole = batch(16)
    value, gradients = jax.value_and_grad(lambda p: loss(embed(p, whole), whole))(PARAMS)
    found = by_pieces(16, microbatch, 1)
    np.testing.assert_allclose(found.loss, value, rtol=1e-6)
    for name in PARAMS:
        np.testing.assert_allclose(found.gradients[name], gradients[name], rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [32, 12, 13])  # of 12 and 13, microbatches are filled up
def test_the_number_of_devices_changes_no_bit(rows: int) -> None:
    one = by_pieces(rows, 4, 1)
    assert one.loss > 0 and np.abs(one.gradients["w"]).min() > 0
    for devices in (2, 8):
        jax.tree.map(np.testing.assert_array_equal, one, by_pieces(rows, 4, devices))


@given(
    rows=st.integers(1, 20), microbatch=st.integers(1, 20), devices=st.sampled_from([1, 2, 4, 8])
)
@settings(max_examples=20, deadline=None)  # each compiles its programs for each of its devices
def test_any_batch_has_the_gradient_of_the_whole(rows: int, microbatch: int, devices: int) -> None:
    microbatch = min(rows, microbatch)
    whole = batch(rows)
    value, gradients = jax.jit(jax.value_and_grad(lambda p: loss(embed(p, whole), whole)))(PARAMS)
    found = by_pieces(rows, microbatch, devices)
    np.testing.assert_allclose(found.loss, value, rtol=1e-5, atol=1e-7)
    for name in PARAMS:
        np.testing.assert_allclose(found.gradients[name], gradients[name], rtol=1e-4, atol=1e-5)


def test_rows_that_fill_a_microbatch_up_have_no_gradient() -> None:
    """Three rows in microbatches of 2: the loss is 1 + 2 + 4 = 7, and so is its gradient by w."""
    here = mesh(1)
    programs = grad_cache.make_programs(
        lambda w, microbatch: microbatch * w, lambda vectors, _: vectors.sum(), here
    )
    rows = np.float32([1, 2, 4])
    parts = grad_cache.shard_microbatches(rows, 2, here)
    assert [np.asarray(part[0]).tolist() for part in parts] == [[1, 2], [4, 4]]
    params = grad_cache.local_arrays(grad_cache.replicate(np.float32(1), here), here)
    found = grad_cache.make_gradient(programs, here)(params, parts, 3)
    assert float(found.loss[0]) == 7 and float(found.gradients[0]) == 7


@pytest.mark.parametrize(
    ("rows", "microbatch", "devices", "count"),
    [(16, 4, 1, 4), (12, 4, 1, 4), (13, 4, 2, 4), (17, 4, 1, 8), (4, 4, 1, 1), (4, 4, 2, 2)],
)
def test_microbatches_are_1_2_4_8_and_one_a_device(
    rows: int, microbatch: int, devices: int, count: int
) -> None:
    assert grad_cache.count_microbatches(rows, microbatch, devices) == count


def test_microbatch_gradients_are_summed_as_a_tree() -> None:
    # 2^24 + 1 rounds to 2^24 in float32
    big = np.float32(2**24)
    rows = np.array([big, 1, -big, 1, 1, 1, 1, 1], np.float32)

    def total(devices: int) -> float:
        here = mesh(devices)
        programs = grad_cache.make_programs(
            lambda w, microbatch: microbatch * w, lambda vectors, _: vectors.sum(), here
        )
        found = grad_cache.make_gradient(programs, here)(
            grad_cache.local_arrays(grad_cache.replicate(np.float32(1), here), here),
            grad_cache.shard_microbatches(rows, 1, here),
            len(rows),
        )
        return float(found.gradients[0])

    # as a tree: (2^24 + 1 -> 2^24) + (-2^24 + 1, exact) = 1; then + ((1 + 1) + (1 + 1)) = 5
    assert [total(devices) for devices in (1, 4)] == [5, 5]
    assert float(np.sum(rows.astype(np.float64))) == 6


@pytest.mark.parametrize(
    ("rows", "microbatch", "devices", "told"),
    [
        (8, 0, 1, "batch is 8 and microbatch 0"),
        (8, 9, 1, "batch is 8 and microbatch 9"),
        (12, 1, 3, "3 devices cannot share a batch: use 1, 2, 4"),
    ],
)
def test_batches_that_cannot_be_cut_are_refused(
    rows: int, microbatch: int, devices: int, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        grad_cache.check_batch(rows, microbatch, mesh(devices))


@pytest.mark.parametrize(
    ("rows", "microbatch", "devices"), [(4, 1, 4), (4, 4, 1), (4, 2, 2), (64, 4, 8), (24, 4, 8)]
)
def test_a_small_batch_leaves_devices_idle(rows: int, microbatch: int, devices: int) -> None:
    """Of eight devices; 4 pairs (T5's default batch) need no more than 4 of them."""
    assert jax.device_count() == 8
    assert grad_cache.fitting_mesh(rows, microbatch).size == devices


@pytest.mark.parametrize(
    ("processes", "each", "microbatches", "used"),
    [
        (8, 4, 16, 2),  # 32 chips and 16 microbatches: 2 chips of each host
        (8, 4, 32, 4),
        (8, 4, 100, 4),
        (2, 4, 4, 2),
        (2, 4, 2, 1),
        (2, 4, 1, 1),  # the second process has a microbatch of rows that do not count
    ],
)
def test_processes_use_equally_many_devices(
    processes: int, each: int, microbatches: int, used: int
) -> None:
    devices = [
        SimpleNamespace(process_index=number, id=f"{number}.{i}")
        for number in range(processes)
        for i in range(each)
    ]
    found = [one.id for one in grad_cache.fitting_devices(devices, microbatches)]
    assert found == [f"{number}.{i}" for number in range(processes) for i in range(used)]
