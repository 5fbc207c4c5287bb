"""The contract of trainings: killed anywhere, one goes on and ends in the same bytes.

When it is finished, the same call computes nothing, and one with other settings is refused.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from jaxrag.training.checkpoints import Checkpoints
from jaxrag.types import InputError
from tests.interruptions import stopped
from tests.methods.ars.bandit import test_job as bandit
from tests.training.processes import on_one_device
from tests.training.train_job import execute


def trained(name: str, directory: Path, **changes: Any) -> Any:
    """What a training made: its weights, metrics without counts of this call, and other lines."""
    found = execute(name, directory, "inputs", save_every=1, **changes)
    lines = [{k: v for k, v in line.items() if k != "reranked"} for line in found["metrics"]]
    return found["weights"], lines, contents(directory / "run")


def contents(directory: Path) -> dict[str, bytes]:
    """The files of lines but for those that have times."""
    files = (path for path in directory.glob("*.jsonl") if path.stem not in ("log", "metrics"))
    return {path.name: path.read_bytes() for path in files}


def stopped_at(step: int, saved: list[int]) -> Any:
    """`Checkpoints.save`, interrupted at a step; it notes the steps that it was called for."""
    real = Checkpoints.save

    def save(self: Checkpoints, number: int, *given: Any) -> None:
        saved.append(number)
        if number == step:
            self.wait()  # for the checkpoint before
            raise KeyboardInterrupt
        real(self, number, *given)

    return save


SLOW = ("student", "ppo", "sidr", "dpr", "reindexed")


@pytest.mark.parametrize(
    "name", ["ranker", "r3", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_training_goes_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_one_device(monkeypatch)
    directory = tmp_path / "stopped"
    last = 3 if name == "r3" else 2  # R3's second step is the first with passages retrieved
    for step in (1, last):  # before its first checkpoint, and after it
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Checkpoints, "save", stopped_at(step, []))
            trained(name, directory)
    whole, saved = trained(name, tmp_path / "whole"), list[int]()
    monkeypatch.setattr(Checkpoints, "save", stopped_at(0, saved))
    assert whole[0] and trained(name, directory) == whole
    assert saved[0] == last  # the steps before are not made again
    saved.clear()
    assert trained(name, directory) == whole and not saved
    with pytest.raises(InputError, match=r"seed: 0 recorded, 1 now"):
        trained(name, directory, seed=1)


def test_trainings_of_bandits_go_on(tmp_path: Path) -> None:
    """A job that adds a line a training to a file."""
    job = dataclasses.replace(bandit.made(tmp_path), workers=1)
    whole, begun = tmp_path / "whole", tmp_path / "begun"
    writes = stopped(lambda: job.execute(whole), float("inf"), KeyboardInterrupt())
    for at in (0, *[writes // 4] * 3):
        stopped(lambda: job.execute(begun), at, KeyboardInterrupt())
        if (begun / "curves.jsonl").exists():
            with (begun / "curves.jsonl").open("a") as stream:
                stream.write('{"torn')
    assert stopped(lambda: job.execute(begun), float("inf"), KeyboardInterrupt()) < writes
    assert contents(begun) == contents(whole) != {}
    for shown in job.execute(begun).shown:
        Console().print(shown)
    with pytest.raises(InputError, match="seeds: 2 recorded, 3 now"):
        dataclasses.replace(job, seeds=3).execute(begun)
