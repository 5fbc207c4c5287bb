import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.training import loop
from jaxrag.training.loop import METRICS, fit
from jaxrag.types import InputError
from tests.training import train_toy
from tests.training.processes import finished, free_port, started


class Count:
    """0, 1, 2, ..."""

    def __init__(self) -> None:
        self.at = 0

    def __next__(self) -> int:
        self.at += 1
        return self.at - 1

    def get_state(self) -> Any:
        return {"at": self.at}

    def set_state(self, state: Any) -> None:
        self.at = state["at"]


def step(state: Any, item: int, number: int) -> tuple[Any, dict[str, Any]]:
    assert item == number  # data and steps go on together
    total = {"x": state["x"] * 0.5 + item}
    return total, {"loss": total["x"].sum()}


def run(directory: Path, steps: int = 7, step=step, **more: Any) -> Any:
    settings: dict[str, Any] = {"steps": steps, "save_every": 2, "what": "test"} | more
    return fit({"x": jnp.ones(3)}, Count(), step, directory=directory, **settings)


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / METRICS).read_text().splitlines()]


def test_metrics_by_hand(tmp_path: Path) -> None:
    # 1 -> 0.5 + 0 -> 0.25 + 1 = 1.25 -> 0.625 + 2 = 2.625; three of each
    found = run(tmp_path, 3)
    assert found["x"].tolist() == [2.625] * 3
    assert [line["loss"] for line in lines(tmp_path)] == [1.5, 3.75, 7.875]
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3]


def test_metrics_are_tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of the file, with the first step of the process that makes it."""
    found: list[Any] = []

    @contextlib.contextmanager
    def tracking(directory: Path, *, after: int, writes: bool) -> Iterator[Any]:
        found.append((directory, after, writes))
        yield lambda number, metrics: found.append((number, metrics["loss"]))

    monkeypatch.setattr(loop, "tracking", tracking)
    run(tmp_path, 2)
    run(tmp_path, 3)
    assert found == [(tmp_path, 0, True), (1, 1.5), (2, 3.75), (tmp_path, 2, True), (3, 7.875)]


def test_a_step_is_dispatched_before_the_loss_of_the_last_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next item is made before, too; a loss is read at once only where it is saved."""
    seen: list[str] = []

    class Seen(Count):
        def __next__(self) -> int:
            seen.append(f"item {self.at}")
            return super().__next__()

    def dispatched(state: Any, item: int, number: int) -> Any:
        seen.append(f"step {number}")
        return state, {"loss": float(number)}

    finite = loop._finite

    def read(metrics: Any, number: int, saved: Any) -> Any:
        seen.append(f"loss {number - 1}")
        return finite(metrics, number, saved)

    monkeypatch.setattr(loop, "_finite", read)
    settings: dict[str, Any] = {"steps": 4, "save_every": 3, "what": "test"}
    fit({"x": jnp.ones(3)}, Seen(), dispatched, directory=tmp_path, **settings)
    wanted = ["item 0", "step 0", "item 1", "step 1", "loss 0", "item 2", "step 2", "loss 1"]
    assert seen[:8] == wanted and [line["loss"] for line in lines(tmp_path)] == [0, 1, 2, 3]
    saved = seen[8:]
    assert saved[0] == "loss 2" and saved.index("loss 2") < saved.index("item 3")


@pytest.mark.parametrize("at", [1, 2])
def test_an_interrupted_run_resumes(tmp_path: Path, at: int) -> None:
    def breaks(state: Any, item: int, number: int) -> Any:
        if number == at:
            raise KeyboardInterrupt
        return step(state, item, number)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", step=breaks)
    with (tmp_path / "broken" / METRICS).open("a") as stream:
        stream.write('{"step": 9')  # cut short by a kill
    again, whole = run(tmp_path / "broken"), run(tmp_path / "whole")
    assert again["x"].tolist() == whole["x"].tolist()
    assert [line["loss"] for line in lines(tmp_path / "broken")] == [
        line["loss"] for line in lines(tmp_path / "whole")
    ]
    assert run(tmp_path / "broken")["x"].tolist() == whole["x"].tolist()  # nothing is left to do


@pytest.mark.parametrize("fsdp", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_two_processes_train_as_one_does(tmp_path: Path, fsdp: int) -> None:
    """Steps, metrics and checkpoints; only the first process writes the metrics."""
    train_toy.train(tmp_path / "one", devices=jax.devices()[:1])
    port, module = free_port(), "tests.training.train_toy"
    both = [started(module, tmp_path / "two", fsdp, i, 2, port, devices=1) for i in (0, 1)]
    first, second = map(finished, both)
    thirds = [number / 3 for number in range(5)]  # exchanged with all their digits
    assert first == second and (first["devices"], first["thirds"]) == (2, thirds)
    one, two = (np.load(tmp_path / name / "w.npy") for name in ("one", "two"))
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-5)  # by plain descent
    alone, together = (
        np.array([(line["step"], line["loss"], line["norm"]) for line in lines(tmp_path / name)])
        for name in ("one", "two")
    )
    np.testing.assert_allclose(together, alone, rtol=1e-5)
    assert len({*alone[:, 1]}) == train_toy.STEPS
    saved = [
        {path.name for path in (tmp_path / name).glob("checkpoints/*")} for name in ("one", "two")
    ]
    assert saved[0] == saved[1] == {"2", "3"}


def test_evaluations_and_their_steps(tmp_path: Path) -> None:
    seen: list[int] = []

    def evaluate(state: Any, number: int) -> dict[str, np.ndarray]:
        seen.append(number)
        return {"first": np.array([state["x"][0], np.nan, 0]), "none": np.array([np.nan])}

    run(tmp_path, 7, evaluate=evaluate, evaluate_every=3)
    assert seen == [0, 3, 6, 7]
    (first,) = [line for line in lines(tmp_path) if line["step"] == 0]
    assert first["watched"] == {"first": 0.5, "none": None}  # (1 + 0) / 2
    assert first["each"] == {"first": [1.0, None, 0.0], "none": [None]}
    run(tmp_path, 7, evaluate=evaluate, evaluate_every=3)
    assert seen == [0, 3, 6, 7]


def test_what_takes_long_is_said_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def evaluate(state: Any, number: int) -> Any:
        said.append(capsys.readouterr().err)
        return {}

    def stepping(*given: Any) -> Any:
        said.append(capsys.readouterr().err)
        return step(*given)

    run(tmp_path, 1, stepping, evaluate=evaluate, evaluate_every=1)
    before, first, _ = said
    assert before == "test: evaluation before the first step\n"
    assert first == "test: 1 steps to make; the first is compiled before it runs\n"


def test_a_non_finite_loss_stops_the_run(tmp_path: Path) -> None:
    def poisoned(state: Any, item: int, number: int) -> Any:
        state, figures = step(state, item, number)
        return state, figures | {"loss": figures["loss"] * (jnp.nan if number == 4 else 1)}

    told = r"Step 5: loss is nan\. .* checkpoint is that of step 4"
    with pytest.raises(InputError, match=told):
        run(tmp_path, step=poisoned)
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4]
    assert run(tmp_path)["x"].tolist() == run(tmp_path / "whole")["x"].tolist()
    with pytest.raises(InputError, match=r"Step 1: loss is inf\..* none is saved"):
        run(tmp_path / "at once", step=lambda s, i, n: (s, {"loss": float("inf")}))


def test_invalid_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="steps is 0"):
        run(tmp_path, 0)
    with pytest.raises(InputError, match="save_every 0"):
        run(tmp_path, save_every=0)
