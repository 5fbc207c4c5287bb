"""A method with a trained helper of its own: one new folder, and no other file knows of it.

The folder lies outside of jaxrag. Its helper is trained, and the method is planned, run,
recorded and reported by the same commands as any other.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxrag.evaluation.records import read_run
from jaxrag.experiments.report import main as report
from jaxrag.experiments.run import main
from jaxrag.experiments.status import main as status
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run

QUESTIONS = 30

HELPER = '''
"""A helper that classifies questions by their length; training finds the threshold."""

import dataclasses
import json
import statistics
from collections.abc import Iterator
from pathlib import Path

from jaxrag.core.hashing import canonical
from jaxrag.engines.scheduler import Operation, Request
from jaxrag.runs.job import job_directory, trained
from jaxrag.runs.loading import describe, load_data
from jaxrag.types import InputError


class LengthTool:
    def __init__(self, threshold):
        self.identity = canonical({"threshold": threshold})
        self._operation = Operation(
            name="length",
            identity=self.identity,
            run=lambda texts: [len(text) > threshold for text in texts],
            key=canonical,
            encode=lambda value: canonical(value).encode(),
            decode=json.loads,
            cost=lambda text, value: {"length_checks": 1},
        )

    async def is_long(self, text):
        return await Request(self._operation, text)


@dataclasses.dataclass(frozen=True)
class LengthHelper:
    checkpoint: str = ""

    name = "length"

    def check(self, field):
        if not self.checkpoint:
            raise InputError(f"no length model: give --{field}.checkpoint=DIRECTORY")

    def load(self, loaded):
        model = json.loads((Path(self.checkpoint) / "model.json").read_text())
        return LengthTool(model["threshold"])


@dataclasses.dataclass(frozen=True)
class TrainLength:
    data: object
    cache: str

    def execute(self, workdir):
        dataset = load_data(self.data, Path(self.cache))
        with job_directory(workdir, {"data": describe(self.data)}) as directory:
            lengths = [len(question.text) for question in dataset.questions]
            model = directory / "model.json"
            model.write_text(json.dumps({"threshold": statistics.median_low(lengths)}))
        return trained(directory)
'''

METHOD = '''
"""Reads passages for questions that its helper calls long, and answers the others directly."""

import dataclasses

from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import Needs
from {package}.helper import LengthHelper


@dataclasses.dataclass(frozen=True)
class Config:
    reader: Reader
    length: LengthHelper = LengthHelper()

    name = "by_length"
    needs = Needs(search=True)

    async def answer(self, episode):
        text = episode.question.text
        if await episode.helper(self.length).is_long(text):
            return await episode.answer(await episode.search(text, 2))
        return await episode.answer()
'''

CONFIG = """
import dataclasses

from jaxrag.runs.config_file import load
from {package}.helper import LengthHelper, TrainLength
from {package}.method import Config


def get_config(variant="answer"):
    run = load({small!r})
    if variant == "train":
        return TrainLength(run.data, run.cache)
    return dataclasses.replace(run, method=Config(run.method.reader))
"""

PACKAGE = "a_method_from_elsewhere"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: Any) -> Iterator[str]:
    """The config file in the folder of the new method."""
    small = tmp_path / "small"
    small.mkdir()
    run = write_small_run(small, questions=QUESTIONS)
    folder = tmp_path / PACKAGE
    folder.mkdir()
    for name, text in (
        ("__init__", ""),
        ("helper", HELPER),
        ("method", METHOD),
        ("config", CONFIG),
    ):
        content = text if name == "helper" else text.format(package=PACKAGE, small=str(run))
        (folder / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield str(folder / "config.py")
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


def test_trained_planned_stored_recorded_and_reported(
    config: str, tmp_path: Path, capsys: Any
) -> None:
    with pytest.raises(InputError, match=r"give --config\.method\.length\.checkpoint=DIRECTORY"):
        main(["run", f"--config={config}", "--dry-run"])
    trained = tmp_path / "trained"
    assert main(["run", f"--config={config}:train", f"--workdir={trained}"]) == 0
    command = [f"--config={config}", f"--config.method.length.checkpoint={trained}"]
    workdir, whole = tmp_path / "run", tmp_path / "whole"

    capsys.readouterr()
    assert main(["run", *command, f"--workdir={workdir}", "--dry-run"]) == 0
    plan = capsys.readouterr().out.splitlines()
    for begin, part in (
        ("method", "by_length (by_length)"),
        ("length ", "length"),
        ("calls", "unknown; run a few questions with these settings, then python -m"),
    ):
        assert any(line.startswith(begin) and part in line for line in plan), begin

    assert main(["run", *command, f"--workdir={workdir}"]) == 0
    uncached = f"--config.store={tmp_path / 'other.sqlite'}"
    assert main(["run", *command, f"--workdir={whole}", uncached]) == 0
    answers = (workdir / "answers.jsonl").read_bytes()
    assert answers == (whole / "answers.jsonl").read_bytes()
    records = read_run(workdir).records
    assert {record["cost"].get("searches", 0) for record in records} == {0, 1}
    assert all(record["cost"]["length_checks"] == 1 for record in records)

    recorded = read_run(workdir).config
    threshold = json.loads((trained / "model.json").read_text())["threshold"]
    assert recorded["method"]["is"] == recorded["method"]["name"] == "by_length"
    assert recorded["helpers"] == {"length": {"name": "length", "threshold": threshold}}
    (trained / "model.json").write_text(json.dumps({"threshold": threshold + 1}))
    with pytest.raises(InputError, match=rf"helpers\.length\.threshold: {threshold} recorded"):
        main(["run", *command, f"--workdir={workdir}"])

    capsys.readouterr()
    assert status(["status", str(workdir)]) == 0
    assert "30/30" in capsys.readouterr().out
    page = tmp_path / "report.html"
    assert report(["report", f"--runs={workdir}", f"--out={page}"]) == 0
    assert "by_length" in capsys.readouterr().out
    assert "by_length" in page.read_text() and "by_length" in page.with_suffix(".md").read_text()
