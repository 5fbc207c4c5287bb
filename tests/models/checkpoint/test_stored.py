"""Tensors that are read in part: the same numbers, and never more than one of them on the host."""

import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxrag.models.checkpoint.files import Tensors, read_tensors
from jaxrag.models.checkpoint.stored import StoredTensor
from jaxrag.models.decoder.checkpoint import load_decoder
from jaxrag.models.parameters import flatten, to_devices
from tests.engines.tiny_model import write_tiny_model
from tests.models.checkpoint import small_gguf

FLOAT32 = jnp.dtype("float32")
PARTS = [
    (slice(None), slice(None)),
    (slice(1, 3), slice(None, 2)),
    (slice(0, 0), slice(None)),
    (slice(2, None), slice(1, None)),
]


@pytest.mark.parametrize("index", PARTS)
def test_a_part_is_that_of_the_whole(index: Any, tmp_path: Path) -> None:
    tensors = write_tiny_model(tmp_path)
    stored = read_tensors(tmp_path).stored("model.layers.0.mlp.up_proj.weight")
    whole = tensors["model.layers.0.mlp.up_proj.weight"]
    assert stored.shape == whole.shape
    np.testing.assert_array_equal(stored.part(index), whole[index])
    # rows 2 to 6 of it as a tensor of their own
    np.testing.assert_array_equal(stored.rows(2, 6).part(index), whole[2:6][index])
    np.testing.assert_array_equal(stored.rows(2, 6).read(), whole[2:6])


def test_a_tensor_without_a_reader_of_parts_is_read_whole(tmp_path: Path) -> None:
    array = np.arange(12.0).reshape(4, 3)
    stored = StoredTensor(array.shape, lambda: array)
    np.testing.assert_array_equal(stored.part((slice(1, 3), slice(2, None))), [[5], [8]])
    assert stored.rows(1, 3).read().base is None  # no view, which would keep the whole


def watched(array: np.ndarray, events: list[Any]) -> StoredTensor:
    def part(index: Any) -> np.ndarray:
        events.append(array[index].shape)
        return array[index]

    return StoredTensor(array.shape, lambda: part(...), part)


def test_a_process_reads_only_what_its_devices_hold_and_that_once() -> None:
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"))
    events: list[Any] = []
    array = np.arange(32, dtype=np.float32).reshape(8, 4)
    name = "model.layers.0.mlp.up_proj.weight"
    placed = to_devices({name: watched(array, events)}, FLOAT32, mesh)[name]
    np.testing.assert_array_equal(np.asarray(placed), array)
    # rows are cut over "model"; the devices of "data" hold the same
    assert events == [(4, 4), (4, 4)]
    assert {shard.data.shape for shard in placed.addressable_shards} == {(4, 4)}


@pytest.mark.parametrize("stacked", [False, True])
def test_loading_holds_one_parameter_at_a_time(stacked, tmp_path, monkeypatch) -> None:
    tensors = write_tiny_model(tmp_path)
    alive: set[int] = set()
    most = [0]
    own = Tensors.stored

    def stored(self: Tensors, name: str) -> StoredTensor:
        one = own(self, name)

        def read() -> Any:
            held = np.array(one.read())
            alive.add(id(held))
            weakref.finalize(held, alive.discard, id(held))
            most[0] = max(most[0], len(alive))
            return held

        return StoredTensor(one.shape, read)

    monkeypatch.setattr(Tensors, "stored", stored)
    _, params = load_decoder(tmp_path, dtype=jnp.dtype("bfloat16"), stacked=stacked)
    assert most[0] == 1 and not alive
    assert len(flatten(params)) < len(tensors) if stacked else len(flatten(params)) == len(tensors)


def test_a_gguf_tells_its_shapes_before_it_is_read(tmp_path: Path) -> None:
    tensors = {"blk.0.ffn_up.weight": np.ones((64, 32), np.float32)}
    read = read_tensors(small_gguf.write(tmp_path / "m.gguf", tensors))
    for name in read:
        assert read.stored(name).shape == read[name].shape
