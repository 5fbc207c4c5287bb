"""What a run's files tell of it while it runs, after a kill, and at its end."""

from pathlib import Path

import pytest

from experiments.status import main
from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.status import status
from jaxrag.types import InputError

CONFIG = {"method": {"name": "dtr"}, "dataset": {"name": "nq", "questions": 5}}


def line(name: str, retrieve: bool) -> dict:
    trace = {"gate": {"retrieve": retrieve}, "searches": []}
    cost = {"llm_calls": 2, "prompt_tokens": 10, "new_tokens": 3}
    common = {"question_id": name, "question": "?", "gold_answers": ["a"], "gold_passages": []}
    return {**common, "prediction": "a", "trace": trace, "cost": cost}


def started(path: Path) -> RunDirectory:
    run = RunDirectory.open(path, CONFIG, environment={})
    failed = {k: v for k, v in line("c", True).items() if k not in ("prediction", "trace", "cost")}
    run.append(
        [line("a", True), line("b", False), {**failed, "error": "ValueError: c"}],
        [{"question_id": name, "seconds": 30.0, "store_hits": 1} for name in "abc"],
    )
    return run


def test_a_run_in_progress(tmp_path: Path) -> None:
    run = started(tmp_path)
    found = status(tmp_path)
    assert (found.method, found.dataset, found.state) == ("dtr", "nq", "running")
    assert (found.asked, found.answered, found.errors) == (5, 2, 1)
    assert found.left == 60.0  # two questions have no line; 30 s each so far
    assert found.trigger == 0.5
    assert found.totals["prompt_tokens"] == 20
    assert found.totals["store_hits"] == 2  # the failed question's are not counted
    run.close()


def test_a_run_that_was_stopped_and_one_that_is_finished(tmp_path: Path) -> None:
    run = started(tmp_path)
    run.close()
    assert status(tmp_path).state == "elsewhere or stopped"
    assert status(tmp_path, now=1e12).state == "stopped"
    with RunDirectory.open(tmp_path, CONFIG, environment={}) as run:
        run.append([line(name, True) for name in "cde"])
        run.finish(list("abcde"))
    assert status(tmp_path).state == "finished"
    assert status(tmp_path).trigger == 0.8


def test_a_run_without_answers(tmp_path: Path) -> None:
    with RunDirectory.open(tmp_path, CONFIG, environment={}):
        found = status(tmp_path)
    assert (found.answered, found.trigger, found.left) == (0, None, None)


def test_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started(tmp_path / "run").close()
    assert main(["status", str(tmp_path / "run")]) == 1
    out = capsys.readouterr().out
    assert "2/5" in out
    assert "50.0 %" in out
    with pytest.raises(InputError, match="not a run directory"):
        main(["status", str(tmp_path)])
    with pytest.raises(InputError, match="RUN"):
        main(["status"])
