"""Scripts say what they do before they do it: the order is tested, not the time."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import LocalModel
from jaxrag.experiments.run import main
from jaxrag.models.checkpoint import files
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.runs import loading
from tests.experiments.small_run import write_small_run

COMMAND = "from jaxrag.experiments.__main__ import main; main()"  # what the command jaxrag does
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "experiments.run"],
        ["-m", "experiments", "status"],
        ["-c", COMMAND, "run"],
    ],
    ids=" ".join,
)
def test_the_first_line_comes_before_packages_are_imported(
    command: list[str], tmp_path: Path
) -> None:
    for package in ("jax", "numpy", "rich"):  # whichever is imported first
        (tmp_path / f"{package}.py").write_text(f"raise SystemExit('importing {package}')\n")
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    first, second = done.stderr.splitlines()
    assert first == "loading Python packages (JAX and others)" and second.startswith("importing ")


def test_an_import_by_other_code_says_nothing() -> None:
    code = "import experiments"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and done.stderr == done.stdout == ""


def test_a_run_says_what_it_loads_and_compiles_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_small_run(tmp_path, questions=2)
    before: dict[str, str] = {}
    shown = [""]

    def watch(
        owner: Any, name: str, what: str, *, stop: bool = False, latest: bool = False
    ) -> None:
        real = getattr(owner, name)

        def watched(*values: Any, **named: Any) -> Any:
            shown[0] += capsys.readouterr().err
            if latest or what not in before:
                before[what] = shown[0].splitlines()[-1]
            if stop:  # what would be compiled now
                raise SystemExit(what)
            return real(*values, **named)

        monkeypatch.setattr(owner, name, watched)

    for name in ("_tell_loading", "load_model", "open_index_over"):
        getattr(loading, name).cache_clear()
    watch(Folder, "load", "data")
    watch(files, "_open", "weights", latest=True)
    watch(Exact, "open", "index")
    watch(LocalModel, "generate_each", "answers", stop=True)
    with pytest.raises(SystemExit, match="answers"):
        main(["run", f"--config={config}", f"--workdir={tmp_path / 'run'}"])
    assert before["data"] == "loading the data set (Folder)"
    assert before["weights"] == f"loading the weights of {tmp_path / 'model'}"
    assert before["index"].startswith("index encoder, exact of 40 passages: ")
    expected = "dtr on data: 2 questions to answer; new batch shapes are compiled first"
    assert before["answers"] == expected
