"""Run directories from before classes were recorded by their names alone are read, not continued.

``old_run`` is such a directory: DTR on three questions, with "is": "gates.UncertaintyGate" and a
"judge" beside the language model in config.json.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from jaxrag.evaluation.records import RunDirectory, read_run
from jaxrag.experiments.report import main as report
from jaxrag.experiments.run import main
from jaxrag.experiments.status import main as status
from jaxrag.types import InputError
from tests.evaluation import fabricate
from tests.experiments.small_run import write_small_run


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
