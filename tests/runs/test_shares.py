"""Several processes answer a run's questions: the answers of one process, also after a kill."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from jaxrag.core import jsonl
from jaxrag.experiments.run import main
from jaxrag.runs import shares
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run
from tests.training.processes import free_port, started

COUNT = 10


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_run(tmp_path_factory.mktemp("run"), questions=COUNT)


@pytest.fixture(scope="module")
def alone(config: Path) -> bytes:
    """The answers of one process."""
    assert run(config, config.parent / "alone", "alone") == 0
    return (config.parent / "alone" / "answers.jsonl").read_bytes()


def run(config: Path, workdir: Path, store: str) -> int:
    own = f"--config.store={config.parent / store}.sqlite"  # computed, not read from a store
    return main(["run", f"--config={config}", own, f"--workdir={workdir}"])


def as_process(monkeypatch: pytest.MonkeyPatch, process: int, processes: int) -> None:
    monkeypatch.setattr(jax, "process_index", lambda: process)
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    monkeypatch.setattr(jax.distributed, "shutdown", lambda: None)


def ids(directory: Path) -> list[str]:
    return [line["question_id"] for line in jsonl.read(directory / "answers.jsonl")]


def test_shares_put_together_are_the_answers_of_one_process(
    config: Path, alone: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for process in (2, 1, 0):
        as_process(monkeypatch, process, 3)
        assert run(config, tmp_path, f"of-{process}") == 0
    assert sorted(ids(shares.share_directory(tmp_path, 1))) == ["q1", "q4", "q7"]
    assert (tmp_path / "answers.jsonl").read_bytes() == alone
    assert (tmp_path / "metrics.json").is_file()
    # with another number of processes nothing is answered again
    as_process(monkeypatch, 0, 1)
    assert run(config, tmp_path, "again") == 0
    assert (tmp_path / "answers.jsonl").read_bytes() == alone


def test_an_interrupted_share_goes_on(
    config: Path, alone: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_process(monkeypatch, 1, 2)
    assert run(config, tmp_path, "left") == 0
    file = shares.share_directory(tmp_path, 1) / "answers.jsonl"
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:2]) + whole[2][:20])  # killed while writing the third
    as_process(monkeypatch, 0, 2)
    with pytest.raises(InputError, match=r"3 questions, such as 'q\d', have no answer"):
        run(config, tmp_path, "left")
    as_process(monkeypatch, 1, 2)
    assert run(config, tmp_path, "left") == 0
    as_process(monkeypatch, 0, 2)
    assert run(config, tmp_path, "left") == 0
    assert (tmp_path / "answers.jsonl").read_bytes() == alone


def test_processes_without_a_shared_directory_are_an_error(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_process(monkeypatch, 0, 2)
    with pytest.raises(InputError, match=r"processes/1 is not there: .* need one --workdir"):
        run(config, tmp_path, "lonely")
    assert len(ids(shares.share_directory(tmp_path, 0))) == COUNT // 2  # kept


@pytest.mark.slow
def test_two_processes_of_four_devices_answer_as_one_does_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    config = write_small_run(tmp_path / "files", questions=400)
    model = ["--config.model.data_parallel=2", "--config.model.tensor_parallel=2"]

    def start(workdir: str, store: str, *flags: str) -> subprocess.Popen[str]:
        own = [f"--workdir={tmp_path / workdir}", f"--config.store={tmp_path / store}.sqlite"]
        return started(
            "experiments.run",
            f"--config={config}",
            "--config.live=1",
            *model,
            *own,
            *flags,
            devices=4,
        )

    def start_both() -> list[subprocess.Popen[str]]:
        port = free_port()
        return [start("both", f"of-{i}", f"--distributed=localhost:{port},2,{i}") for i in (0, 1)]

    def lines(directory: Path) -> int:
        file = directory / "answers.jsonl"
        return file.read_bytes().count(b"\n") if file.is_file() else 0

    both, share = start_both(), shares.share_directory(tmp_path / "both", 1)
    until(lambda: lines(share) >= 2, timeout=300)
    both[1].kill()
    assert both[1].communicate(timeout=300) and both[1].returncode == -signal.SIGKILL
    both[0].kill()  # as a scheduler does with the rest of a job
    both[0].communicate(timeout=300)
    kept = lines(share)
    assert 2 <= kept < 200 and not (tmp_path / "both" / "answers.jsonl").exists()

    both = start_both()
    shown = [process.communicate(timeout=300)[0] for process in both]
    one = start("one", "one")
    one.communicate(timeout=300)
    assert [process.returncode for process in (*both, one)] == [0, 0, 0]
    assert "dtr " in shown[0] and "dtr " not in shown[1]  # one row of results
    both_answers, answers = (tmp_path / d / "answers.jsonl" for d in ("both", "one"))
    assert both_answers.read_bytes() == answers.read_bytes()


def until(true: Callable[[], bool], timeout: float) -> None:
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end, f"not within {timeout} s"
        time.sleep(0.02)
