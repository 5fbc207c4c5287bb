"""Metrics for TensorBoard and Weights & Biases, and what is not tracked."""

import json
import math
import struct
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from jaxrag.core.tracking import VARIABLE, trackers, tracking
from jaxrag.types import InputError


def events(directory: Path) -> list[tuple[str, int, float]]:
    """Name, step and value of each scalar in the event files, and ("start", step, 0)."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted((directory / "tensorboard").iterdir()):
        data = file.read_bytes()
        while data:  # a record: its length, a checksum of it, the event, a checksum of it
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            if event.HasField("session_log"):
                found.append(("start", event.step, 0.0))
            found += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
    return found


def test_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboardX")
    monkeypatch.setenv(VARIABLE, "tensorboard")
    with tracking(tmp_path) as track:
        track(1, {"loss": 2.5, "watched": {"recall": 0.5, "none": None}, "each": {"recall": [1]}})
        track(2, {"loss": math.nan, "n": 3})
    # what is no number has no curve
    assert events(tmp_path) == [("loss", 1, 2.5), ("watched/recall", 1, 0.5), ("n", 2, 3.0)]
    with tracking(tmp_path / "on", after=4) as track:  # replaces later steps of an earlier process
        track(5, {"loss": 1.0})
    assert events(tmp_path / "on") == [("start", 5, 0.0), ("loss", 5, 1.0)]


class Wandb(types.ModuleType):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.given: dict[str, Any] = {}
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0

    def init(self, **given: Any) -> "Wandb":
        self.given = given
        return self

    def log(self, numbers: dict[str, float], *, step: int) -> None:
        self.logged.append((step, numbers))

    def finish(self) -> None:
        self.finished += 1


def test_wandb_is_offline_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv(VARIABLE, "wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    (tmp_path / "config.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(ZeroDivisionError), tracking(tmp_path) as track:
        track(3, {"loss": 1.0})
        raise ZeroDivisionError
    assert fake.logged == [(3, {"loss": 1.0})] and fake.finished == 1
    assert fake.given["mode"] == "offline" and fake.given["config"] == {"a": 1}
    assert fake.given["name"] == tmp_path.name and fake.given["dir"] == str(tmp_path)
    first = fake.given["id"]
    monkeypatch.setenv("WANDB_MODE", "online")
    with tracking(tmp_path):
        pass
    assert fake.given["mode"] == "online" and fake.given["id"] == first


def test_nothing_is_tracked_without_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with tracking(tmp_path) as track:
        track(1, {"loss": 1.0})
    monkeypatch.setenv(VARIABLE, "nothing")
    with tracking(tmp_path, writes=False) as track:  # a process beside the first
        track(1, {"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_wrong_names_and_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "tensorbord")
    with pytest.raises(InputError, match="'tensorbord'; give tensorboard or wandb"):
        trackers()
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setenv(VARIABLE, "wandb")
    with pytest.raises(InputError, match="pip install wandb"):
        trackers()
