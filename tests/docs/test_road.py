"""A question passes through every file that docs/road.md names: a traced run of DTR."""

import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from jaxrag.core import file_states
from jaxrag.experiments import run as script
from jaxrag.runs import run as runs
from tests.experiments.small_run import write_small_run

ROOT = Path(__file__).parents[2]


class Trace:
    """Files in which a function is called. It runs at every call, so it does little."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":
            self._names.add(code.co_filename)

    @property
    def files(self) -> set[str]:
        """Those below the repository."""
        paths = [path for path in map(Path, self._names) if path.is_relative_to(ROOT)]
        return {str(path.relative_to(ROOT)) for path in paths}

    def start(self) -> None:
        threading.setprofile(self)
        sys.setprofile(self)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


def test_a_question_passes_through_the_named_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_small_run(tmp_path, questions=12)
    trace, answer_all = Trace(), runs.answer

    def until_recorded(*arguments: Any) -> None:
        answer_all(*arguments)
        trace.stop()

    def launch(name: str) -> None:
        arguments = ["--config", str(config), f"--workdir={tmp_path / name}"]
        script.main(["run", *arguments, "--config.store=memory"])

    monkeypatch.setattr(file_states, "_SETTLED", -1.0)  # files of this moment are kept, too
    launch("first")  # loads models and compiles programs
    monkeypatch.setattr(runs, "answer", until_recorded)
    trace.start()
    try:
        launch("second")
    finally:
        trace.stop()
    page = (ROOT / "docs" / "road.md").read_text("utf-8")
    named = set(re.findall(r"`(jaxrag/[\w/]+\.py)`", page))
    assert len(named) > 20 and named <= trace.files
