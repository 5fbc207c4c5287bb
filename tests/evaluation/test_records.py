"""Run directories: resume, refusal, torn lines, locks and full disks."""

import csv
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import jax
import pytest

import jaxrag
from jaxrag.evaluation import records
from jaxrag.evaluation.records import RunDirectory, differences, read_passages, read_run
from jaxrag.evaluation.report.page import write_report
from jaxrag.experiments.report import main as report
from jaxrag.experiments.run import main
from jaxrag.experiments.status import main as status
from jaxrag.types import InputError, Passage
from tests.evaluation import fabricate
from tests.experiments.small_run import write_small_run

CONFIG = {"method": {"name": "dtr", "threshold": 0.005}, "dataset": {"name": "factbook"}}
ENVIRONMENT = {"started": "2026-01-01T00:00:00+00:00", "jaxrag": "0.1.0", "packages": {"jax": "1"}}
IDS = [f"q{i:02}" for i in range(20)]


def line(question: str, **changes: Any) -> dict[str, Any]:
    text = f"Who is {question}, “é” \u2028 \ud800?"  # a line separator and half a surrogate pair
    return {
        "question_id": question,
        "question": text,
        "gold_answers": [question],
        "prediction": question,
        "trace": {"direct": {"u": 0.1 + 1e-17, "text": question}},
        "cost": {"llm_calls": 1},
    } | changes


def failed(question: str) -> dict[str, Any]:
    return {"question_id": question, "question": "?", "gold_answers": ["x"], "error": "boom"}


def timing(question: str, seconds: float = 1.0) -> dict[str, Any]:
    return {"question_id": question, "seconds": seconds, "store_hits": 0}


def start(path: Path, config: Any = CONFIG) -> RunDirectory:
    return RunDirectory.open(path, config, environment=ENVIRONMENT)


def whole_run(path: Path) -> bytes:
    with start(path) as run:
        run.append([line(i) for i in IDS], [timing(i) for i in IDS])
        run.finish(IDS)
    return (path / "answers.jsonl").read_bytes()


def killed_run(path: Path) -> bytes:
    """A run with all answers, killed before its metrics were written."""
    whole = whole_run(path)
    (path / "metrics.json").unlink()
    return whole


def test_a_run_is_written_and_read_back(tmp_path: Path) -> None:
    with start(tmp_path / "a" / "b") as run:
        assert run.finished == frozenset()
        run.append([line("q01"), line("q00")], [timing("q01", 2.5)])
        found = run.finish(["q00", "q01", "q02"], passages=[Passage("7", "T", "text <b>")])
    assert (found["questions"], found["answered"], found["missing"]) == (3, 2, 1)
    assert found["means"]["exact_match"]["mean"] == 1 and found["totals"]["llm_calls"] == 2
    assert "recall" not in found["means"]
    read = read_run(tmp_path / "a" / "b")
    assert [record["question_id"] for record in read.records] == ["q00", "q01"]
    assert read.records[0] == line("q00") and read.timings["q01"]["seconds"] == 2.5
    assert read.config == CONFIG and read.environments == [ENVIRONMENT] and read.finished
    assert read_passages(tmp_path / "a" / "b") == {
        "7": {"id": "7", "title": "T", "text": "text <b>"}
    }
    metrics = json.loads((tmp_path / "a/b/metrics.json").read_text())
    answers = (tmp_path / "a/b/answers.jsonl").read_bytes()
    assert metrics == found | {"answers_sha256": hashlib.sha256(answers).hexdigest()}


def test_seconds_that_are_not_known_are_null(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.append([line("q00"), line("q01")], [timing("q00"), timing("q01") | {"stored": 1}])
        run.finish(["q00", "q01"])
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert found["means"]["seconds"] is None and found["totals"]["seconds"] is None
    write_report([tmp_path], tmp_path / "report.html")
    (shown,) = csv.DictReader((tmp_path / "report.csv").read_text("utf-8").splitlines())
    assert shown["seconds"] == "" and shown["LLM calls"] == "1"
    head, _, body = (tmp_path / "report.md").read_text("utf-8").split("\n")[2:5]
    cells = dict(zip(head.split(" | "), body.split(" | "), strict=True))
    assert cells["seconds"] == "–" and cells["LLM calls"] == "1.00"


def test_resumed_in_any_order_is_byte_identical(tmp_path: Path) -> None:
    expected = whole_run(tmp_path / "whole")
    order = random.Random(0).sample(IDS, len(IDS))
    done: set[str] = set()
    for session in range(4):
        with start(tmp_path / "parts") as run:
            assert run.finished == done
            todo = [i for i in order if i not in run.finished][:5]
            run.append([line(i) for i in todo], [timing(i, session) for i in todo])
            done |= set(todo)
    with start(tmp_path / "parts") as run:
        run.finish(IDS)
        assert (tmp_path / "parts" / "answers.jsonl").read_bytes() == expected
        run.finish(IDS)
    assert (tmp_path / "parts" / "answers.jsonl").read_bytes() == expected


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_torn_last_line_is_cut_and_asked_again(tmp_path: Path, cut: int) -> None:
    expected = killed_run(tmp_path)
    os.truncate(tmp_path / "answers.jsonl", len(expected) - cut)
    assert len(read_run(tmp_path).records) == len(IDS) - 1  # reading leaves the file alone
    with start(tmp_path) as run:
        assert run.finished == set(IDS[:-1])
        run.append([line(IDS[-1])], [timing(IDS[-1])])
        run.finish(IDS)
    assert (tmp_path / "answers.jsonl").read_bytes() == expected


def test_errors_are_retried_and_replaced(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.append([line("q00"), failed("q01")])
        found = run.finish(["q00", "q01"])
        assert (found["answered"], found["errors"]) == (1, 1)
    with start(tmp_path) as run:
        assert run.finished == {"q00"}
        run.append([line("q01")])
        assert not (tmp_path / "metrics.json").exists()
        assert run.finish(["q00", "q01"])["errors"] == 0
    assert (tmp_path / "answers.jsonl").read_text().count("\n") == 2


def test_a_changed_config_is_refused_by_name(tmp_path: Path) -> None:
    start(tmp_path).close()
    changed = {"method": {"name": "dtr", "threshold": 0.01}, "dataset": {"name": "nq"}, "k": 3}
    with pytest.raises(InputError) as error:
        start(tmp_path, changed)
    message = str(error.value)
    assert 'dataset.name: "factbook" recorded, "nq" now' in message
    assert "k: absent recorded, 3 now" in message
    assert "method.threshold: 0.005 recorded, 0.01 now" in message
    assert "Use another run directory" in message and "method.name" not in message
    assert read_run(tmp_path).config == CONFIG
    start(tmp_path).close()  # and the lock was given back


def test_a_job_goes_on_when_its_cache_was_moved(tmp_path: Path) -> None:
    def config(cache: str) -> dict[str, Any]:
        return CONFIG | {"cache": cache, "run": {"cache": cache}}

    start(tmp_path, config("runs/cache")).close()
    start(tmp_path, config("/home/a/.cache/jaxrag")).close()
    with pytest.raises(InputError, match="other settings"):
        start(tmp_path, config("runs/cache") | {"cached": "a"})


def test_a_new_environment_is_noted_not_refused(tmp_path: Path) -> None:
    start(tmp_path).close()
    later = ENVIRONMENT | {"started": "2026-01-02T00:00:00+00:00"}
    RunDirectory.open(tmp_path, CONFIG, environment=later).close()
    assert read_run(tmp_path).environments == [ENVIRONMENT]
    newer = later | {"packages": {"jax": "2"}}
    RunDirectory.open(tmp_path, CONFIG, environment=newer).close()
    assert read_run(tmp_path).environments == [ENVIRONMENT, newer]


def test_the_second_writer_is_refused(tmp_path: Path) -> None:
    with start(tmp_path), pytest.raises(InputError, match="another process is writing"):
        start(tmp_path)
    start(tmp_path).close()


def test_answers_that_changed_after_the_end_are_refused(tmp_path: Path) -> None:
    whole = whole_run(tmp_path)
    file = tmp_path / "answers.jsonl"
    file.write_bytes(whole.replace(b'"prediction": "q07"', b'"prediction": "q08"'))
    for attempt in (lambda: start(tmp_path), lambda: read_run(tmp_path)):
        with pytest.raises(InputError, match=r"answers\.jsonl has changed since the run finished"):
            attempt()
    file.write_bytes(whole)
    assert read_run(tmp_path).finished
    file.unlink()
    with pytest.raises(InputError, match="has changed"):
        read_run(tmp_path)
    (tmp_path / "metrics.json").unlink()  # the way out: both are made again
    assert whole_run(tmp_path) == whole


@pytest.mark.parametrize("junk", ["", "{", "[]", '{"config": 3, "environments": []}', '{"a": 1}'])
def test_a_foreign_config_is_refused(tmp_path: Path, junk: str) -> None:
    (tmp_path / "config.json").write_text(junk)
    with pytest.raises(InputError, match="not the config"):
        start(tmp_path)


@pytest.mark.parametrize("name", ["answers.jsonl", "timings.jsonl", "config.json"])
def test_a_file_of_a_terabyte_is_refused_at_once(tmp_path: Path, name: str) -> None:
    path = fabricate.run(tmp_path / "run", "dtr", n=2)
    os.truncate(path / name, 1 << 40)  # of holes
    with pytest.raises(InputError, match=rf"{name} .*1,099,511,627,776 bytes, of at most"):
        read_run(path)


def test_directories_without_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run directory"):
        read_run(tmp_path)
    with pytest.raises(InputError, match="there is no such directory"):
        read_run(tmp_path / "nowhere")
    (tmp_path / "answers.jsonl").touch()
    with pytest.raises(InputError, match=r"answers\.jsonl but no config\.json"):
        start(tmp_path)
    with pytest.raises(InputError, match="is a file"):
        start(tmp_path / "answers.jsonl")


def test_answers_to_other_questions_are_refused(tmp_path: Path) -> None:
    with start(tmp_path) as run:
        run.append([line("stranger")])
        with pytest.raises(InputError, match="not in this run: stranger"):
            run.finish(IDS)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with start(tmp_path) as run:
        run.append([line(i) for i in IDS[:4]])
        size = (tmp_path / "answers.jsonl").stat().st_size
        # A limit on file size fails a write half-way, as a full disk does.
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
        try:
            with pytest.raises(InputError, match=r"answers.jsonl may not grow so large .* is kept"):
                run.append([line("q04")])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, handler)
        assert (tmp_path / "answers.jsonl").stat().st_size == size
        run.append([line(i) for i in IDS[4:]])
        assert run.finish(IDS)["answered"] == len(IDS)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_records_are_strict_json(tmp_path: Path, value: Any) -> None:
    with start(tmp_path) as run, pytest.raises(ValueError, match="q00: not plain JSON"):
        run.append([line("q00", trace={"direct": {"u": value}})])
    assert not (tmp_path / "answers.jsonl").exists()


def test_named_passages_each_once(tmp_path: Path) -> None:
    searches = [{"path": "q", "ids": ["b", "a"]}, {"path": "p", "ids": ["a", "c"]}]
    with start(tmp_path) as run:
        run.append([line("q00", trace={"searches": searches}), failed("q01")])
        assert run.named_passages() == ["b", "a", "c"]


def test_a_config_with_tuples_resumes(tmp_path: Path) -> None:
    config = {"stop": ("a", "b")}
    with start(tmp_path, config) as run:
        run.append([line("q00")])
    with start(tmp_path, config) as run:
        assert run.finished == {"q00"}
    assert read_run(tmp_path).config == {"stop": ["a", "b"]}
    assert differences({"a": 1}, {"a": True}) == ["a: 1 recorded, true now"]
    with pytest.raises(InputError, match=r'stop: \["a", "b"\] recorded, \["a"\] now'):
        start(tmp_path, {"stop": ("a",)})


def test_environment_is_plain_and_private() -> None:
    found = records.describe_environment()
    text = json.dumps(found, allow_nan=False)
    assert found["jaxrag"] == jaxrag.__version__ and found["devices"] == {"cpu:cpu": 8}
    assert found["packages"]["jax"] == jax.__version__ and found["python"].startswith("3.")
    assert {*found["packages"]} <= {*records.PACKAGES}  # without those that are not installed
    for private in (str(Path.home()), str(Path.cwd()), os.environ["PATH"]):
        assert private not in text


def test_no_git_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **kwargs: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", missing)
    assert records.git_commit() is None


def test_an_install_inside_another_checkout_has_no_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr(records, "__file__", str(tmp_path / "jaxrag/evaluation/records.py"))
    assert records.git_commit() is None


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).with_name("old_run"), tmp_path / "old"))


def test_it_is_reported_beside_a_new_run(old: Path, tmp_path: Path, capsys: Any) -> None:
    new = fabricate.run(tmp_path / "new", "standard_rag", n=3, dataset="data")
    page = tmp_path / "report.html"
    assert report(["report", f"--runs={old}", f"--runs={new}", f"--out={page}"]) == 0
    assert "2 methods on data" in page.read_text()
    row = next(line for line in page.with_suffix(".md").read_text().split("\n") if "| dtr" in line)
    assert "| dtr | 3 (unfinished) | 0.0 [" in row and "| 100.0 [" in row  # EM and trigger
    assert "dtr" in capsys.readouterr().out


def test_its_status_is_shown(old: Path, capsys: Any) -> None:
    assert status(["status", str(old)]) == 1  # it was not finished
    assert "3/3" in capsys.readouterr().out


def test_continuing_it_is_refused_with_one_message(old: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    config, before = write_small_run(small, questions=3), read_run(old)
    for more in ([], ["--dry-run"]):
        with pytest.raises(InputError, match="earlier version of jaxrag") as error:
            main(["run", f"--config={config}", f"--workdir={old}", *more])
        assert str(old) in str(error.value) and "Use another run directory" in str(error.value)
    assert read_run(old) == before
    RunDirectory.open(old, before.config, environment={}).close()  # its own config is no other
