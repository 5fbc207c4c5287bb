import json
import os
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.device_memory import Devices, host_memory
from jaxrag.retrieval.dense.device_rows import device_budget, fast_type
from jaxrag.retrieval.dense.exact import ExactIndex, exact_footprint
from jaxrag.retrieval.settings import Footprint
from jaxrag.types import InputError
from tests.retrieval.fakes import FakeEncoder, VectorEncoder, build_matrix, numbered

ONE = jax.devices()[:1]


def index(directory, vectors, *, shard_rows=None, metric="inner_product", devices=ONE, **options):
    passages, encoder = numbered(len(vectors)), VectorEncoder(vectors)
    build_matrix(passages, encoder, directory, **({"shard_rows": shard_rows} if shard_rows else {}))
    return ExactIndex.open(directory, encoder, passages, metric=metric, devices=devices, **options)


def reference(vectors, queries, k, metric):
    """Rows and float32 scores by float64 arithmetic on the stored vectors."""
    vectors, queries = vectors.astype(np.float16).astype(float), queries.astype(float)
    if metric == "inner_product":
        scores = queries @ vectors.T
    else:
        scores = -np.square(queries[:, None] - vectors).sum(axis=-1)
    scores = scores.astype(np.float32)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


def check(found, vectors, queries, k, metric) -> None:
    rows, scores = reference(vectors, queries, k, metric)
    assert [ranking.ids for ranking in found] == list(map(tuple, rows.tolist()))
    got = np.array([ranking.scores for ranking in found])
    np.testing.assert_allclose(got, scores, rtol=2e-7, atol=1e-9)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("metric", ["inner_product", "l2"])
@pytest.mark.parametrize("k", [1, 10, 1000])
def test_float64_reference(tmp_path, metric, k) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((700, 24), np.float32)  # lengths differ: the metrics disagree
    queries = rng.standard_normal((150, 24), np.float32)
    exact = index(tmp_path, vectors, metric=metric, shard_rows=300)
    check(exact.search(queries, k), vectors, queries, k, metric)


@pytest.mark.parametrize(
    ("metric", "first_pass", "memory"),
    [("inner_product", jnp.bfloat16, None), ("l2", np.float32, 3 * 2 * 16 * 1650)],
)  # fmt: skip
def test_more_ties_than_two_rows_of_a_block(tmp_path, metric, first_pass, memory) -> None:
    """5,000 rows, in memory or 4 slabs: 300 are one vector, and 60 are within an ulp of it."""
    rng = np.random.default_rng(3)
    vectors = unit(rng.standard_normal((5000, 16), np.float32))
    vectors[100:400] = vectors[7]
    last_bit = vectors[100:160].astype(np.float16)
    last_bit[:, 3] = np.nextafter(last_bit[:, 3], np.float16(1))
    vectors[100:160] = last_bit
    queries = unit(vectors[[7, 7, 90, 4000]] + 0.01 * rng.standard_normal((4, 16), np.float32))
    exact = index(tmp_path, vectors, metric=metric, first_pass=first_pass, memory=memory)
    assert exact.rows.resident == (memory is None)
    check(exact.search(queries, 20), vectors, queries, 20, metric)


@pytest.mark.parametrize(
    ("metric", "devices", "first_pass"),
    [("inner_product", 8, jnp.bfloat16), ("l2", 1, np.float32),
     pytest.param("inner_product", 1, np.float32, marks=pytest.mark.slow),
     pytest.param("l2", 8, jnp.bfloat16, marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_budget_below_the_matrix_changes_nothing(tmp_path, metric, devices, first_pass) -> None:
    """5 slabs of 640 rows, 40 kB of 160: the same bits, ties and near ties included."""
    rng = np.random.default_rng(4)
    vectors = unit(rng.standard_normal((3001, 32), np.float32))
    vectors[620:660] = vectors[3]  # on both sides of a slab's end
    queries = unit(vectors[rng.choice(3001, 15)] + 0.1 * rng.standard_normal((15, 32)))
    queries = np.concatenate([queries.astype(np.float32), vectors[3:4]])
    whole = index(tmp_path, vectors, metric=metric, shard_rows=1000)
    assert whole.rows.resident and whole.rows.dtype == "float32"
    parts = index(
        tmp_path,
        vectors,
        metric=metric,
        devices=jax.devices()[:devices],
        memory=3 * 64 * 640,
        first_pass=first_pass,
        shard_rows=1000,
    )
    slabs = list(parts.rows)
    assert [slab.first for slab in slabs] == [0, 640, 1280, 1920, 2560]
    assert slabs[0].vectors.dtype == np.float16 and len(slabs[-1].vectors) == 640
    assert parts.identity == whole.identity
    assert parts.search(queries, 10) == whole.search(queries, 10)


def test_rows_are_held_as_precisely_as_fits(tmp_path) -> None:
    vectors = np.eye(10, 4, dtype=np.float32)
    for memory, dtype, resident in ((160, "float32", True), (159, "float16", True),
                                    (80, "float16", True), (79, "float16", False)):  # fmt: skip
        rows = index(tmp_path, vectors, memory=memory).rows
        assert (rows.dtype, rows.resident) == (dtype, resident)
    assert index(tmp_path, vectors, memory=1).rows.slab == 1  # never below a row


def test_default_memory() -> None:
    """Half of this machine's memory, or of every device's free memory: (100 - 20) / 2 = 40."""
    assert 0 < host_memory() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert device_budget(Devices.of(ONE)) == host_memory() // 2
    fakes = [FakeDevice("gpu", {"bytes_limit": 100, "bytes_in_use": 20}), FakeDevice("gpu", None)]
    assert device_budget(Devices.of(fakes[:1])) == 40
    assert device_budget(Devices.of(fakes)) == 80
    for few in (True, False):
        assert fast_type(mesh_of(fakes[0]), few=few) == jnp.bfloat16
    assert fast_type(mesh_of(*ONE), few=True) == jnp.float32


class FakeDevice(NamedTuple):
    platform: str
    stats: dict | None

    def memory_stats(self):
        return self.stats


def mesh_of(*devices):
    mesh = np.empty(len(devices), object)
    mesh[:] = devices
    return SimpleNamespace(devices=mesh)


def test_footprint() -> None:
    """1000 numbers: 2 bytes each on disk, 4 or 2 on the devices, or what is allowed."""
    assert exact_footprint(1000, 1.0) == Footprint(2000, 4000)
    assert exact_footprint(1000, 3e-6)[:2] == (2000, 2000)
    small = exact_footprint(1000, 1e-6)
    assert small[:2] == (2000, 1000) and "each search reads them all" in small.note
    # 21,015,324 x 1,024 numbers on devices of 80 GB: half of one holds slabs of 1 GiB, three at
    # once; of two, all
    cells = 21_015_324 * 1024
    assert exact_footprint(cells, 0.0, Devices(1, 80e9)).memory == 3 * 2**30
    assert exact_footprint(cells, 0.0, Devices(2, 80e9)).memory == 2 * cells


def test_ties_come_in_the_order_of_rows(tmp_path) -> None:
    exact = index(tmp_path, np.tile(np.eye(4, dtype=np.float32)[1], (50, 1)))
    (ranking,) = exact.search(np.ones((1, 4), np.float32), 6)
    assert (ranking.ids, ranking.scores) == (tuple(range(6)), (1.0,) * 6)
    (ranking,) = exact.search(np.zeros((1, 4), np.float32), 6)
    assert (ranking.ids, ranking.scores) == (tuple(range(6)), (0.0,) * 6)


@pytest.mark.parametrize("metric", ["inner_product", "l2"])
def test_eight_devices_give_the_results_of_one(tmp_path, metric) -> None:
    rng = np.random.default_rng(2)
    vectors = rng.standard_normal((101, 8), np.float32)  # not divisible by eight
    vectors[40:60] = vectors[3]
    queries = rng.standard_normal((5, 8), np.float32)
    one = index(tmp_path, vectors, metric=metric)
    many = ExactIndex.open(
        tmp_path, one.encoder, one.passages, metric=metric, devices=jax.devices()
    )
    assert len(jax.devices()) == 8
    for k in (10, 200):
        assert many.search(queries, k) == one.search(queries, k)


def test_a_query_does_not_depend_on_the_batch(tmp_path) -> None:
    rng = np.random.default_rng(3)
    vectors = unit(rng.standard_normal((900, 48), np.float32))
    vectors[100:130] = vectors[5]
    queries = unit(np.concatenate([vectors[:40], rng.standard_normal((100, 48))])).astype("f")
    exact = index(tmp_path, vectors)
    together = exact.search(queries, 10)
    for size in (1, 2, 16, 17, 139):
        start = 140 - size
        assert exact.search(queries[start:], 10) == together[start:]
    order = rng.permutation(140)
    assert exact.search(queries[order], 10) == [together[i] for i in order]


def test_tiny_corpora_and_large_k(tmp_path) -> None:
    for count in (1, 2, 3):
        exact = index(tmp_path / str(count), np.eye(4, dtype=np.float32)[:count])
        (ranking,) = exact.search(np.array([[3, 2, 1, 0]], np.float32), 10)
        assert ranking.ids == (0, 1, 2)[:count]
        assert ranking.scores == (3.0, 2.0, 1.0)[:count]
        assert exact.search(np.empty((0, 4), np.float32), 10) == []


def test_identity(tmp_path) -> None:
    vectors = np.eye(3, dtype=np.float32)
    one = index(tmp_path / "i", vectors)
    assert json.loads(one.identity)["matrix"]["encoder"] == json.loads(one.encoder.identity)
    assert one.identity == index(tmp_path / "i", vectors).identity
    assert one.identity != index(tmp_path / "i", vectors, metric="l2").identity
    assert one.identity != index(tmp_path / "j", 2 * vectors).identity


def test_invalid_input_is_refused(tmp_path) -> None:
    exact = index(tmp_path, np.eye(3, dtype=np.float32))
    with pytest.raises(InputError, match="metric"):
        ExactIndex.open(tmp_path, exact.encoder, exact.passages, metric="cosine")
    with pytest.raises(InputError, match="made from something else"):
        ExactIndex.open(tmp_path, FakeEncoder(), exact.passages)


@pytest.mark.parametrize("bound, sure", [(1.0, False), (0.9, True)])
def test_rows_within_the_rounding_of_the_first_pass_are_searched_for(tmp_path, bound, sure) -> None:
    """2^-8 = 0.0039 may be lost in bfloat16: 1 + 0.0039 > 1 + 2^-10, 0.9 + 0.0039 is not."""
    exact = index(tmp_path, np.ones((20, 1), np.float32), first_pass=jnp.bfloat16)
    kth, last, rest = (np.array([score]) for score in (1 + 2.0**-10, 0.5, bound))
    errors = exact._errors(np.ones((1, 1), np.float32), exact.first_pass)
    assert exact._sure(errors, kth, last, rest).tolist() == [sure]
