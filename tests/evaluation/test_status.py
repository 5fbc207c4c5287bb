"""What a run's files tell of it while it runs, after a kill, and at its end."""

import json
import os
from pathlib import Path

import pytest

from jaxrag.evaluation.prices import Price
from jaxrag.evaluation.records import RunDirectory
from jaxrag.evaluation.status import named_directories, run_directories, status
from jaxrag.experiments.status import main
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
    assert main(["status", str(tmp_path)]) == 1
    assert "2/5" in capsys.readouterr().out  # the run below
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: no run directory, and none is below"):
        main(["status", str(tmp_path / "empty")])
    with pytest.raises(InputError, match="none: there is no such directory"):
        main(["status", str(tmp_path / "none")])
    with pytest.raises(InputError, match="RUN"):
        main(["status"])


def test_runs_below_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs that have begun, but no trainings, checkpoints or damaged files of others."""
    started(tmp_path / "b" / "one").close()
    RunDirectory.open(tmp_path / "a", CONFIG, environment={}).close()
    RunDirectory.open(tmp_path / "training", {"steps": 3}, environment={}).close()
    table = json.dumps({"config": CONFIG})  # as a table of rewards has
    others = {"checkpoint": "{}", "list": "[]", "damaged": "{", "table": table}
    for name, text in others.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    runs = [tmp_path / "a", tmp_path / "b" / "one"]
    RunDirectory.open(runs[1] / "processes" / "0", CONFIG, environment={}).close()
    assert run_directories(tmp_path) == runs
    assert named_directories([tmp_path / "training", tmp_path]) == [tmp_path / "training", *runs]
    (tmp_path / "begin").mkdir()
    capsys.readouterr()
    assert named_directories([f"{tmp_path}/b*"]) == [runs[1]]
    told = " ".join(capsys.readouterr().err.split())
    assert told.endswith("begin is left out: it is no run directory, and none is below it")


def test_dollars_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = {"language_model": {"name": "gpt"}}
    with RunDirectory.open(tmp_path / "run", CONFIG | model, environment={}) as run:
        helped = line("b", True)
        helped["cost"] |= {"prompt_tokens": 110, "helper_prompt_tokens": 100}
        failed = {k: v for k, v in line("c", True).items() if k not in ("trace", "cost")}
        run.append([line("a", True), helped, {**failed, "error": "ValueError: c"}])
    prices = {"gpt": Price(1e6, 2e6, "2026-01-01")}
    # 10 tokens read and 3 written a question, 10 * 1 + 3 * 2 = 16 dollars; two are missing
    assert status(tmp_path / "run", prices=prices).dollars_left == 32.0
    assert status(tmp_path / "run", prices={}).dollars_left is None
    started(tmp_path / "without a price").close()
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({"gpt": prices["gpt"]._asdict()}))
    assert main(["status", str(tmp_path), f"--prices={file}"]) == 1
    out = capsys.readouterr().out
    assert "2 runs, 2 not finished; 32.00 dollars left where a price is known" in out


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    started(tmp_path / "run").close()
    os.mkfifo(tmp_path / "run" / "metrics.json")
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / "config.json")
    assert run_directories(tmp_path) == [tmp_path / "run"]
    assert status(tmp_path / "run").asked == 5
