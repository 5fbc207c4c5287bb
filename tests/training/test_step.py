"""A step's gradient: equal to that of the whole batch, on any devices, cut or copied."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrag.models.sharding import local_mesh
from jaxrag.retrieval import buckets
from jaxrag.training import step as training
from jaxrag.types import InputError

TOLERANCE = 1e-5  # of loss and gradients on other devices, see docs/training.md
WIDTH = 128  # so that a matrix of its square is cut over "fsdp"
random = np.random.default_rng(0)
PARAMS = {
    "w": np.float32(random.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5),
    "scale": np.float32(0.7),
}


def batch(rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        "x": random.normal(size=(rows, WIDTH)).astype(np.float32),
        "weight": random.normal(size=rows).astype(np.float32),
    }


def embed(params: Any, part: Any, key: jax.Array) -> Any:
    return jnp.tanh(part["x"] @ params["w"]), part["x"].sum(1) * params["scale"]


def embed_with_dropout(params: Any, part: Any, key: jax.Array) -> Any:
    kept = jax.random.bernoulli(key, 0.9, part["x"].shape)
    return embed(params, part | {"x": jnp.where(kept, part["x"], 0)}, key)


def contrastive(vectors: Any, whole: Any) -> jax.Array:
    """Depends on all pairs of rows, and on the rows' order."""
    first, second = vectors
    scores = first @ first.T / WIDTH**0.5 + 0.1 * second[:, None] * whole["weight"]
    return -jnp.diagonal(jax.nn.log_softmax(scores)).mean()


def squares(params: Any, part: Any, key: jax.Array) -> jax.Array:
    first, second = embed(params, part, key)
    return jnp.square(first).sum() + (second * part["weight"]).sum()


def rows_of(parts: Any) -> int:
    return parts["weight"].size


GRADIENTS = {
    "contrastive": training.grad_cache(embed, contrastive),
    "dropout": training.grad_cache(embed_with_dropout, contrastive),
    "summed": training.summed(squares, rows_of),
}


def step_of(name: str, devices: int, fsdp: int, microbatch: int) -> training.TrainStep:
    """A step whose optimiser's state is the gradient."""
    mesh = training.training_mesh(
        microbatch * 2, microbatch, fsdp=fsdp, devices=jax.devices()[:devices]
    )
    assert mesh.size == devices
    optimiser = optax.trace(0.0)
    return training.make_step(GRADIENTS[name], optimiser, microbatch=microbatch, mesh=mesh)


def loss_and_gradient(
    name: str, rows: int = 32, microbatch: int = 8, *, devices: int = 1, fsdp: int = 1
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    step = step_of(name, devices, fsdp, microbatch)
    state, figures = step.update(step.begin(PARAMS), batch(rows), 3)
    return jax.device_get((figures["loss"], state.optimiser.trace))


def whole_batch(name: str, rows: int) -> Any:
    whole = batch(rows)

    def loss(params: Any) -> jax.Array:
        key = jax.random.key(0)  # of no effect
        if name == "summed":
            return squares(params, whole, key) / rows
        return contrastive(embed(params, whole, key), whole)

    return jax.device_get(jax.jit(jax.value_and_grad(loss))(PARAMS))


def assert_close(found: Any, wanted: Any) -> None:
    """Within the tolerance, of the largest entry of each array."""
    for mine, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        limit = TOLERANCE * np.abs(other).max()
        np.testing.assert_allclose(mine, other, rtol=0, atol=limit)
        assert limit > 0


@pytest.mark.parametrize("name", ["contrastive", "summed"])
@pytest.mark.parametrize(("rows", "microbatch"), [(12, 1), (12, 3), (12, 12)])
def test_microbatches_have_the_gradient_of_the_whole_batch(
    name: str, rows: int, microbatch: int
) -> None:
    assert_close(loss_and_gradient(name, rows, microbatch), whole_batch(name, rows))


@pytest.mark.parametrize("name", GRADIENTS)
def test_other_devices_are_within_the_tolerance(name: str) -> None:
    """Copied and cut parameters; with dropout, whose masks the devices do not change."""
    alone = loss_and_gradient(name)
    for devices, fsdp in ((2, 1), (2, 2), (8, 1), (8, 2), (8, 8)):
        assert_close(loss_and_gradient(name, devices=devices, fsdp=fsdp), alone)


def test_equal_devices_give_equal_bytes() -> None:
    for devices, fsdp in ((1, 1), (8, 4)):
        first, second = (loss_and_gradient("dropout", devices=devices, fsdp=fsdp) for _ in range(2))
        jax.tree.map(np.testing.assert_array_equal, first, second)


def test_dropout_differs_by_step_and_microbatch() -> None:
    step = step_of("dropout", 1, 1, 8)
    same = jax.tree.map(lambda a: np.concatenate([a[:8]] * 2), batch(16))
    losses = [float(step.update(step.begin(PARAMS), same, at)[1]["loss"]) for at in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    # both microbatches have the same rows: vectors differ by their masks alone
    masks = training.grad_cache(embed_with_dropout, lambda v, _: (v[0][:8] - v[0][8:]).max())
    mesh = training.make_mesh(jax.devices()[:1])
    step = training.make_step(masks, optax.identity(), microbatch=8, mesh=mesh)
    assert float(step.update(step.begin(PARAMS), same, 0)[1]["loss"]) > 0


def test_large_arrays_are_cut_over_fsdp_and_stay_so() -> None:
    step = step_of("contrastive", 8, 4, 8)
    state = step.begin(PARAMS)
    for _ in range(2):
        for tree in (state.params, state.optimiser.trace):
            assert tree["w"].addressable_shards[0].data.shape == (WIDTH // 4, WIDTH)
            assert tree["scale"].sharding.is_fully_replicated
        state, _ = step.update(state, batch(16), 0)


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((30522, 768), (None, "fsdp")),  # 30,522 is no multiple of 4
        ((3072, 768), ("fsdp",)),
        ((768, 3072), (None, "fsdp")),
        ((30521, 777), ()),
        ((768,), ()),  # small
    ],
)
def test_the_longest_axis_that_divides_is_cut(
    shape: tuple[int, ...], spec: tuple[Any, ...]
) -> None:
    mesh = training.make_mesh(fsdp=4)
    array = jax.ShapeDtypeStruct(shape, jnp.float32)
    assert tuple(training.shardings(array, mesh).spec) == spec


def test_the_first_state_is_a_copy() -> None:
    """A step donates its state, and the initial parameters are needed later."""
    step, given = step_of("contrastive", 1, 1, 8), jax.tree.map(jnp.array, PARAMS)
    before = jax.device_get(given)
    state = step.begin(given)
    for at in range(2):
        state, _ = step.update(state, batch(16), at)
    jax.tree.map(np.testing.assert_array_equal, given, before)


@pytest.mark.parametrize("fsdp", [1, 8])
def test_parameters_on_every_device_are_not_copied(fsdp: int) -> None:
    step = step_of("contrastive", 8, fsdp, 8)
    params = step.begin(PARAMS).params
    found = training.local_copy(params, step.mesh)
    jax.tree.map(np.testing.assert_array_equal, found, PARAMS)
    assert found["w"].sharding.is_fully_replicated and len(found["w"].addressable_shards) == 8
    pointers = [
        {shard.device: shard.data.unsafe_buffer_pointer() for shard in tree["w"].addressable_shards}
        for tree in (params, found)
    ]
    assert (pointers[0] == pointers[1]) == (fsdp == 1)
    assert buckets.replicate(found, local_mesh()) is found  # nor by an encoder that they go to
    first = training.first_copy(found)
    assert first["w"].devices() == {jax.local_devices()[0]}


@pytest.mark.parametrize(
    ("microbatch", "fsdp", "devices"), [(1, 1, 1), (4, 1, 4), (6, 2, 6), (8, 1, 8), (20, 4, 4)]
)
def test_devices_that_do_not_divide_a_microbatch_are_idle(
    microbatch: int, fsdp: int, devices: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jax.device_count() == 8
    mesh = training.training_mesh(2 * microbatch, microbatch, fsdp=fsdp)
    assert (mesh.size, mesh.shape["fsdp"]) == (devices, fsdp)
    told = f"training on {devices} of 8 devices" in capsys.readouterr().err
    assert told == (devices < 8)


def test_processes_use_equally_many_devices() -> None:
    @dataclasses.dataclass(frozen=True)
    class Device:
        id: str
        process_index: int

    devices = [Device(f"{process}.{i}", process) for process in (0, 1) for i in range(4)]
    mesh = training.training_mesh(24, 6, devices=devices)  # 3 of each divide 6 rows, 4 do not
    wanted = [f"{process}.{i}" for process in (0, 1) for i in range(3)]
    assert [device.id for device in mesh.devices.flat] == wanted
    with pytest.raises(InputError, match=r"microbatch is 3, .* 2 processes of 4 devices"):
        training.training_mesh(3, 3, devices=devices)


@pytest.mark.parametrize(
    ("rows", "microbatch", "fsdp", "told"),
    [
        (8, 0, 1, "batch is 8 and microbatch 0"),
        (8, 9, 1, "batch is 8 and microbatch 9"),
        (12, 8, 1, "its rows divide those of the batch"),
        (8, 4, 3, "microbatch is 4, fsdp 3"),
        (8, 4, 0, "microbatch is 4, fsdp 0"),
        (8, 4, 16, "or lower fsdp"),
    ],
)
def test_batches_that_cannot_be_cut_are_refused(
    rows: int, microbatch: int, fsdp: int, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        training.training_mesh(rows, microbatch, fsdp=fsdp)


@pytest.mark.parametrize(("platform", "impl"), [("tpu", "rbg"), ("cpu", None), ("gpu", None)])
def test_masks_are_drawn_by_the_generator_of_the_devices(platform: str, impl: str | None) -> None:
    mesh: Any = SimpleNamespace(devices=np.array([SimpleNamespace(platform=platform)]))
    assert training.mask_generator(mesh) == impl
