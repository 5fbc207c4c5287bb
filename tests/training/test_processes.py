"""Several processes of a training: shares, exchanged results, and whole jobs."""

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import pytest

from jaxrag.models import processes
from jaxrag.types import InputError
from tests.training.processes import finished, free_port, started

ITEMS = ["a", "b", "c", "d", "e"]
DEVICES = 4  # of each process


def together(monkeypatch: pytest.MonkeyPatch, count: int, work: Any) -> list[Any]:
    """What `shared` gives in each of ``count`` processes, which are threads here."""
    here, waiting = threading.local(), threading.Barrier(count)
    given: list[Any] = [None] * count

    def exchange(mine: Any) -> list[Any]:
        given[here.process] = json.dumps(mine)
        waiting.wait(timeout=10)
        return [json.loads(one) for one in given]

    def process(number: int) -> Any:
        here.process = number
        try:
            return processes.shared(ITEMS, work)
        except InputError as error:
            return str(error)

    monkeypatch.setattr(jax, "process_count", lambda: count)
    monkeypatch.setattr(jax, "process_index", lambda: here.process)
    monkeypatch.setattr(processes, "exchange", exchange)
    with ThreadPoolExecutor(count) as pool:
        return [*pool.map(process, range(count))]


@pytest.mark.parametrize("count", [2, 3, 7])  # of 7, two have nothing to do
def test_all_processes_get_all_results_in_order(monkeypatch: Any, count: int) -> None:
    worked: list[list[str]] = []

    def work(some: Any) -> list[Any]:
        worked.append([*some])
        return [[letter, 1 / 3] for letter in some]

    assert together(monkeypatch, count, work) == [[[letter, 1 / 3] for letter in ITEMS]] * count
    assert sorted(worked) == sorted(ITEMS[i::count] for i in range(count))


def test_one_process_keeps_its_results_as_they_are() -> None:
    assert processes.shared(ITEMS, lambda some: [(letter,) for letter in some])[1] == ("b",)
    assert processes.is_first()


def test_an_error_of_one_process_is_raised_in_all(monkeypatch: Any) -> None:
    def work(some: Any) -> list[Any]:
        if "d" in some:
            raise InputError("Question d: the server is gone")
        return [*some]

    told = "Process 1: Question d: the server is gone"
    assert together(monkeypatch, 2, work) == [told, told]


def job(name: str, directory: Path, *more: Any) -> Any:
    directory.mkdir(exist_ok=True)
    return started("tests.training.train_job", name, directory, *more, devices=DEVICES)


def two_processes(name: str, directory: Path, *, killed: int = 0) -> list[Any]:
    port = free_port()
    return [job(name, directory, process, 2, port, killed) for process in (0, 1)]


def result(found: dict[str, Any]) -> Any:
    """All but the counts of what one process did."""
    lines = [{k: v for k, v in line.items() if k != "reranked"} for line in found["metrics"]]
    return found["weights"], lines


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ranker", "student", "ppo", "sidr", "r3"])
def test_two_processes_train_as_one_does(name: str, tmp_path: Path) -> None:
    """PPO updates on one device of each process. The sums of others are rounded otherwise on more
    devices: of the first step, loss and norm of the gradient are compared.
    """
    one = finished(job(name, tmp_path / "one"))
    first, second = map(finished, two_processes(name, tmp_path / "two"))
    assert second == {} and (one["devices"], first["devices"]) == (DEVICES, 2 * DEVICES)
    if name == "ppo":
        assert one["weights"] and result(first) == result(one)
        return
    steps = [[line for line in found["metrics"] if line["step"]] for found in (first, one)]
    assert [[*line] for line in steps[0]] == [[*line] for line in steps[1]]
    for figure in ("loss", "norm"):
        alike = [line[0][figure] for line in steps]
        assert alike[0] == pytest.approx(alike[1], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ranker", "student", "sidr", "r3"])
def test_two_processes_go_on_after_a_kill(name: str, tmp_path: Path) -> None:
    """One is killed before the second checkpoint; the other ends, and both start again."""
    whole, _ = map(finished, two_processes(name, tmp_path / "whole"))
    first, second = two_processes(name, tmp_path / "two", killed=2)
    assert second.wait(timeout=900) == -signal.SIGKILL
    second.communicate()
    first.communicate(timeout=300)
    assert first.returncode  # it does not wait for ever, and nothing is called finished
    run = tmp_path / "two" / "run"
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines][-2:] == [1, 2]
    saved = [path.name for path in (run / "checkpoints").iterdir() if path.name.isdigit()]
    assert saved == ["1"]
    again, _ = map(finished, two_processes(name, tmp_path / "two"))
    assert whole["weights"] and result(again) == result(whole)
