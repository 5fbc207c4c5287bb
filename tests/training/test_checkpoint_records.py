"""Damaged checkpoints are one error each, and no traceback."""

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest

from jaxrag.training.checkpoints import Checkpoints
from jaxrag.types import InputError


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
