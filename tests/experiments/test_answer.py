"""The quickstart's methods answer four questions.

They are read by a small random language model, whose programs compile quickly, and retrieved by the
real encoder. A slow test reads with SmolLM2.
"""

import contextlib
import dataclasses
import json

import pytest

from jaxrag.engines.local.engine import LocalModel
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.status import named_directories
from jaxrag.experiments import quickstart, sweep
from jaxrag.experiments import run as script
from jaxrag.runs import run as runs_module
from jaxrag.runs.config_file import load
from jaxrag.runs.edits import edited
from jaxrag.runs.run import execute
from jaxrag.types import InputError
from tests.engines.tiny_model import write_tiny_model

SHORTER = {
    "limit": "4",
    "model.rows": "4",
    "method.reader.answer_tokens": "6",
    "method.reader.passage_tokens": "6",
}
MODEL = "tiny-model"
SHORTER_DENSE = SHORTER | {"index.encoder.max_length": "16"}


def flags(settings, cache):
    settings = {**settings, "model.checkpoint": f"{cache}/{MODEL}", "cache": cache}
    return [f"--config.{name}={value}" for name, value in settings.items()]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Folder of stores and indexes, and of the small language model."""
    cache = tmp_path_factory.mktemp("cache")
    write_tiny_model(cache / MODEL, max_position_embeddings=4096)
    return str(cache)


@pytest.fixture(scope="module")
def runs(cache, tmp_path_factory):
    """The run directories of the methods, by name."""
    work = tmp_path_factory.mktemp("runs")
    for method in quickstart.METHODS:
        execute(tiny(method, cache), work / method)
    return {method: work / method for method in quickstart.METHODS}


def tiny(method, cache, **changes):
    run = load(quickstart.config(method, "tiny"))
    run = edited(run, SHORTER if run.index is None else SHORTER_DENSE)
    model = dataclasses.replace(run.model, checkpoint=f"{cache}/{MODEL}")
    return dataclasses.replace(run, cache=cache, model=model, **changes)


def refuse(*arguments, **options):
    raise AssertionError("the language model was called")


def test_every_question_is_answered(runs):
    for method, path in runs.items():
        run = read_run(path)
        assert run.finished and len(run.records) == 4
        for record in run.records:
            assert "error" not in record and record["cost"]["llm_calls"] >= 1
            assert record["trace"]["answer"]["text"] == record["prediction"]
        calls = {record["cost"]["llm_calls"] for record in run.records}
        assert calls <= {"no_retrieval": {1}, "standard_rag": {1}, "pairs": {3, 4},
                         "dtr": {1, 3}, "dtr_wo_ugt": {2}}[method]  # fmt: skip


def test_retrieval_finds_gold(runs):
    metrics = json.loads((runs["standard_rag"] / "metrics.json").read_text())
    assert metrics["means"]["recall"]["mean"] > 0.3


@pytest.mark.slow
def test_answers_of_the_real_model_are_text(cache, tmp_path):
    run = edited(load(quickstart.config("standard_rag", "tiny")), SHORTER_DENSE)
    found = execute(dataclasses.replace(run, cache=cache), tmp_path / "run")
    assert found["errors"] == 0
    predictions = [record["prediction"] for record in read_run(tmp_path / "run").records]
    assert len(predictions) == 4 and sum(bool(text) for text in predictions) >= 3


def test_a_second_run_makes_no_model_calls(runs, cache, tmp_path, monkeypatch):
    monkeypatch.setattr(LocalModel, "generate_each", refuse)
    for method, path in runs.items():
        execute(tiny(method, cache), tmp_path / method)
        again = (tmp_path / method / "answers.jsonl").read_bytes()
        assert again == (path / "answers.jsonl").read_bytes()


def test_a_sweep_moves_the_trigger_ratio_monotonically(runs, cache, tmp_path, monkeypatch, capsys):
    arguments = [
        "sweep",
        "--config=configs/dtr.py:dtr@tiny",
        *flags(SHORTER_DENSE, cache),
        "--values=0,0.3,1,1000",
    ]
    assert sweep.main([*arguments, f"--workdir={tmp_path / 'first'}"]) == 0
    ratios = []
    found = (tmp_path / "first").glob("threshold=*")
    for path in sorted(found, key=lambda p: float(p.name.split("=")[1])):
        ratios.append(json.loads((path / "metrics.json").read_text())["means"]["trigger"]["mean"])
    assert ratios == sorted(ratios, reverse=True) and ratios[0] == 1.0 and ratios[-1] == 0.0
    monkeypatch.setattr(LocalModel, "generate_each", refuse)
    assert sweep.main([*arguments, f"--workdir={tmp_path / 'second'}"]) == 0
    assert "threshold=0.3" in capsys.readouterr().out
    page = (tmp_path / "second" / "report.html").read_text("utf-8")
    drawn = [one.read_text("utf-8") for one in (tmp_path / "second" / "figures").glob("*.svg")]
    assert drawn and "threshold=0.3" in page
    assert len(named_directories([tmp_path / "second"])) == 4


def test_progress_is_shown_before_the_first_question_ends(cache, tmp_path, monkeypatch):
    told = []

    @contextlib.contextmanager
    def heard(total, what, *, done=0):
        yield lambda count, note="", share=0.0: told.append((count, note, share))

    monkeypatch.setattr(runs_module, "progress", heard)
    execute(tiny("standard_rag", cache, store="memory"), tmp_path / "run")
    # 4 questions: one batch to embed them, one to search and one to read
    assert [count for count, *_ in told] == [0, 0, 0, 4]
    assert [share for *_, share in told] == [0, 0.5, 0.95, 0.95]  # of a call and a search each
    assert told[0][1].startswith("requests answered: embed 4")
    assert told[2][1].startswith("requests answered: embed 4, generate 4, search 4")
    assert told[3][1].startswith("retrieves 100 %, 4 LLM calls")


def test_the_script_resumes_and_refuses_other_settings(runs, cache, capsys):
    arguments = [
        "run",
        "--config=configs/dtr.py:dtr@tiny",
        *flags(SHORTER_DENSE, cache),
    ]
    workdir = f"--workdir={runs['dtr']}"
    before = (runs["dtr"] / "answers.jsonl").read_bytes()
    assert script.main([*arguments, workdir]) == 0
    assert (runs["dtr"] / "answers.jsonl").read_bytes() == before
    told = capsys.readouterr().out
    assert "dtr" in told and told.endswith(f"\nnext: jaxrag report {runs['dtr'].parent}\n")
    with pytest.raises(InputError, match=r"method\.gate\.threshold"):
        script.main([*arguments, workdir, "--config.method.gate.threshold=0.9"])
    with pytest.raises(InputError, match="workdir"):
        script.main(arguments)


def test_the_record_has_models_data_and_settings_but_no_path(runs):
    head = json.loads((runs["dtr"] / "config.json").read_text())
    config = head["config"]
    assert config["method"]["name"] == "dtr" and config["dataset"]["name"] == "factbook"
    assert config["method"]["gate"]["is"] == "UncertaintyGate"
    assert len(config["language_model"]["weights"]) >= 16
    assert "/" not in json.dumps({k: v for k, v in config.items() if k != "environments"})
    assert head["environments"][0]["packages"]["jax"]
