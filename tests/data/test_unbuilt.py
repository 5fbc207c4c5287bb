"""What is not built yet, as a dry run tells it."""

from pathlib import Path
from typing import Any

from experiments import run as script
from jaxrag.data.benchmark import Benchmark, set_directory
from jaxrag.data.dataset import LabelledQuestion, write_questions
from jaxrag.data.draw import Draw
from jaxrag.data.folder import Folder
from jaxrag.data.unbuilt import unbuilt
from jaxrag.types import Question


def test_sets_and_corpora_with_their_commands(tmp_path: Path) -> None:
    found = unbuilt(Benchmark("nq"), tmp_path)
    assert [one.name for one in found] == ["set nq", "corpus psgs_w100"]
    assert found[1].command == f"python -m experiments.data psgs_w100 --workdir={tmp_path}"
    # 21,015,324 x 768 x 2 bytes
    assert (
        "21,015,324 passages, about 11 GB on disk" in found[1].size and "32.3 GB" in found[1].size
    )
    rows = [LabelledQuestion(Question("q", "who is it", ("a",)))]
    write_questions(set_directory("nq", tmp_path), {"test": rows})
    assert [one.name for one in unbuilt(Benchmark("nq"), tmp_path)] == ["corpus psgs_w100"]


def test_contexts_are_built_with_their_set(tmp_path: Path) -> None:
    draw = Draw(Benchmark("hotpotqa", "train", "contexts"), Benchmark("hotpotqa", "", "contexts"))
    assert [one.name for one in unbuilt(draw, tmp_path)] == ["set hotpotqa"]
    assert unbuilt(Folder("x"), tmp_path) == []
    (own,) = [
        one for one in unbuilt(Benchmark("nq", corpus="mine"), tmp_path) if "mine" in one.name
    ]
    assert own.size == "of unknown size"


def test_a_dry_run_tells_it(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    for variant in ("configs/dtr.py:dtr@paper-nq", "configs/errr.py:make_pairs_errr@paper-popqa"):
        changes = [f"--config.{'run.' * ('errr' in variant)}cache={tmp_path}"]
        assert script.main(["run", f"--config={variant}", *changes, "--dry-run"]) == 0
        said = capsys.readouterr().out
        assert "not built yet" in said and "about 11 GB on disk" in said
        assert f"python -m experiments.data psgs_w100 --workdir={tmp_path}" in said
