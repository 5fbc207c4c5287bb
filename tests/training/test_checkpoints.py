import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrag.core.hashing import canonical, digest
from jaxrag.training.checkpoints import Checkpoints, checksums
from jaxrag.types import InputError
from tests.training.contents import digest_of

OPTIMISER = optax.adamw(0.1)


class Training(NamedTuple):
    params: Any
    optimiser: Any


def begin(width: int = 4, seed: int = 0) -> Training:
    random = np.random.default_rng(seed)
    params = {"layer": {"weight": jnp.float32(random.normal(size=(8, width)))},
              "bias": jnp.bfloat16(random.normal(size=width))}  # fmt: skip
    return Training(params, OPTIMISER.init(params))


@jax.jit
def step(state: Training, number: Any) -> Training:
    x = jax.random.normal(jax.random.fold_in(jax.random.key(0), number), (5, 8))

    def loss(params: Any) -> Any:
        return jnp.square(x @ params["layer"]["weight"] + params["bias"]).sum()

    updates, optimiser = OPTIMISER.update(
        jax.grad(loss)(state.params), state.optimiser, state.params
    )
    return Training(optax.apply_updates(state.params, updates), optimiser)


def run(state: Training, first: int, last: int) -> Training:
    for number in range(first, last):
        state = step(state, number)
    return state


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    with Checkpoints(tmp_path / "run") as checkpoints:
        assert checkpoints.newest is None and checkpoints.restore(begin()) is None
        checkpoints.save(7, run(begin(), 0, 7), {"next_index": 28})
    with Checkpoints(tmp_path / "run") as checkpoints:
        saved = checkpoints.restore(begin(seed=1))
    assert saved is not None and (saved.step, saved.data) == (7, {"next_index": 28})
    assert isinstance(saved.state, Training)
    whole, continued = run(begin(), 0, 12), run(saved.state, 7, 12)
    assert digest_of(whole) == digest_of(continued)
    assert digest_of(whole) != digest_of(saved.state)


def test_the_newest_are_kept_and_unfinished_ones_ignored(tmp_path: Path) -> None:
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for number in (1, 2, 3):
            checkpoints.save(number, begin(seed=number), number)
        checkpoints.wait()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]
    (tmp_path / "3").rename(tmp_path / "3.orbax-checkpoint-tmp-0")  # as a killed run leaves it
    with Checkpoints(tmp_path) as checkpoints:
        saved = checkpoints.restore(begin())
        assert saved is not None and saved.step == saved.data == 2


def test_checkpoints_of_eight_devices_resume_on_one_and_back(tmp_path: Path) -> None:
    mesh = Mesh(np.array(jax.devices()[:8]), ("data",))

    def spread(leaf: Any) -> Any:
        spec = P("data") if leaf.ndim == 2 else P()
        return jax.device_put(leaf, NamedSharding(mesh, spec))

    one, eight = begin(), jax.tree.map(spread, begin(seed=2))
    for number, (given, template) in enumerate(((one, eight), (eight, one)), 1):
        with Checkpoints(tmp_path / str(number)) as checkpoints:
            checkpoints.save(number, given, None)
            checkpoints.wait()
            saved = checkpoints.restore(template)
        assert saved is not None
        assert digest_of(saved.state) == digest_of(given)
        jax.tree.map(lambda a, b: a.sharding.is_equivalent_to(b.sharding, a.ndim) or 1 / 0,
                     saved.state, template)  # fmt: skip


def test_checkpoints_of_another_model_are_refused(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, begin(), None)
        checkpoints.wait()
        with pytest.raises(
            InputError, match=r"params\.bias is bfloat16 \[4\], this run has bfloat16 \[5\]"
        ):
            checkpoints.restore(begin(width=5))
        plain = begin()
        with pytest.raises(InputError, match="also holds optimiser"):
            checkpoints.restore(Training(plain.params, ()))
        more = {**plain.params, "other": jnp.zeros(3)}
        with pytest.raises(InputError, match=r"lacks params\.other"):
            checkpoints.restore(Training(more, plain.optimiser))


def harm_each_file(directory: Path) -> int:
    """How often a restore told of a file cut short or with a bit flipped; else it was harmless."""
    state, told = begin(), 0
    with Checkpoints(directory) as checkpoints:
        checkpoints.save(5, state, {"next_index": 20})
    for path in sorted(p for p in (directory / "5").rglob("*") if p.is_file()):
        whole = path.read_bytes()
        flipped = bytearray(whole)
        if flipped:
            flipped[len(flipped) * 2 // 3] ^= 4
        for damaged in (whole[: len(whole) // 2], bytes(flipped)):
            path.write_bytes(damaged)
            try:
                with Checkpoints(directory) as checkpoints:
                    saved = checkpoints.restore(begin(seed=3))
                if saved is not None:
                    assert digest_of(saved.state) == digest_of(state)
                    assert saved.data == {"next_index": 20}
            except InputError as error:
                told += 1
                assert str(directory) in str(error)
        path.write_bytes(whole)
    return told


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    """Every file of a checkpoint, cut short or with a bit flipped: an error, or the same state.

    In a process of its own: when one read fails, Orbax leaves the others pending, and they
    complain when they go, in whatever test runs by then.
    """
    code = (
        "import pathlib, sys; from tests.training.test_checkpoints import harm_each_file; "
        "print(harm_each_file(pathlib.Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 4


def test_changed_values_are_refused(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(5, begin(), None)
    record = tmp_path / "5" / "record" / "metadata"
    written = json.loads(record.read_text())
    written.pop("seal")
    written["arrays"]["params.bias"]["checksum"] += 1
    record.write_text(json.dumps(written | {"seal": digest(canonical(written))}))
    told = r"5 is damaged \(the checksum of params\.bias differs"
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(InputError, match=told):
        checkpoints.restore(begin())


def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write checkpoints there"):
        Checkpoints(tmp_path / "file" / "run")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool"])
def test_a_checksum_is_the_sum_of_bits_by_odd_weights(dtype: str) -> None:
    values = np.asarray(jnp.asarray(np.random.default_rng(0).normal(size=(5, 7)) * 3, dtype))
    bits = values.view(f"uint{8 * values.dtype.itemsize}").ravel().tolist()
    # neither order nor a single bit can change without it
    wanted = sum(number * (2 * place + 1) for place, number in enumerate(bits)) % 2**32
    mesh = Mesh(np.array(jax.devices()[:5]), ("data",))
    cut = jax.device_put(values, NamedSharding(mesh, P("data")))  # wherever it is
    assert [int(checksums(array)) for array in (values, cut)] == [wanted] * 2


def test_a_checkpoint_of_an_earlier_version_is_named(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(5, begin(), None)
    record = tmp_path / "5" / "record" / "metadata"
    written = json.loads(record.read_text())
    written = {"data": written["data"], "hashes": written["arrays"]}
    record.write_text(json.dumps(written | {"seal": digest(canonical(written))}))
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(InputError, match="earlier version"):
        checkpoints.restore(begin())


@pytest.mark.parametrize("record", [None, [1], "text", {}, {"seal": "x", "step": math.nan}])
def test_a_record_that_is_no_object_is_named(record: Any, monkeypatch: Any) -> None:
    found = Checkpoints.__new__(Checkpoints)
    found._directory = Path("checkpoints")
    monkeypatch.setattr(Checkpoints, "newest", property(lambda _: 4))
    monkeypatch.setattr(found, "_read", lambda *_, **__: {"record": record}, raising=False)
    with pytest.raises(InputError, match="the hash of its record differs"):
        found.restore({})


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]"])
def test_damaged_metadata_of_a_checkpoint_is_named(text: str, tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"x": jnp.ones(2)}, {})
    (tmp_path / "1" / "_CHECKPOINT_METADATA").write_text(text)
    with pytest.raises(InputError, match="the metadata of a checkpoint is damaged"):
        Checkpoints(tmp_path)


def test_reads_that_a_damaged_checkpoint_abandons_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orbax reads in threads; those that end after the first error find no event loop."""
    shown: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: shown.append(str(what.exc_value)))
    before = sys.unraisablehook
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"x": jnp.ones(2)}, {})
        checkpoints.wait()
        assert checkpoints.restore({"x": jnp.zeros(2)}) is not None
        assert sys.unraisablehook is before
        (tmp_path / "1" / "record" / "metadata").write_text("{")
        with pytest.raises(InputError, match="is damaged"):
            checkpoints.restore({"x": jnp.zeros(2)})
    for text in ("Event loop is closed", "another"):
        sys.unraisablehook(SimpleNamespace(exc_value=RuntimeError(text)))  # type: ignore[arg-type]
    assert shown == ["another"]
