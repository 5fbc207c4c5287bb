"""What published data settings name, and what of it is not built yet, as a dry run tells it."""

from pathlib import Path
from typing import Any

from jaxrag.data.benchmark import Benchmark, set_directory
from jaxrag.data.corpora import corpus_directory
from jaxrag.data.dataset import LabelledQuestion, write_questions
from jaxrag.data.draw import Draw
from jaxrag.data.folder import Folder
from jaxrag.data.origins import origins, unbuilt
from jaxrag.engines.local.engine import Local
from jaxrag.experiments import run as script
from jaxrag.methods.baselines import few_shot
from jaxrag.retrieval.corpus.passages import write_passages
from jaxrag.runs.parts import load_questions
from jaxrag.runs.run import Run
from jaxrag.runs.run_record import settings_record
from jaxrag.types import Passage, Question


def test_sets_and_corpora_with_their_commands(tmp_path: Path) -> None:
    found = unbuilt(Benchmark("nq"), tmp_path)
    assert [one.name for one in found] == ["set nq", "corpus psgs_w100"]
    assert found[1].command == f"jaxrag data psgs_w100 --workdir={tmp_path}"
    # 21,015,324 x 768 x 2 bytes
    assert (
        "21,015,324 passages, about 11 GB on disk" in found[1].size and "32.3 GB" in found[1].size
    )
    rows = [LabelledQuestion(Question("q", "who is it", ("a",)))]
    write_questions(set_directory("nq", tmp_path), {"test": rows})
    assert [one.name for one in unbuilt(Benchmark("nq"), tmp_path)] == ["corpus psgs_w100"]


def test_gold_passages_are_marked_before_a_part_of_a_corpus_is_built(tmp_path: Path) -> None:
    nq, part = unbuilt(Benchmark("nq", corpus="psgs_w100-nq+1000"), tmp_path)
    assert nq.command.endswith(f"nq --workdir={tmp_path} --gold")
    assert "psgs_w100 --gold_of=nq --others=1000" in part.command
    hotpotqa, _ = unbuilt(Benchmark("hotpotqa", corpus="hotpotqa_abstracts-hotpotqa+9"), tmp_path)
    assert "--gold" not in hotpotqa.command  # whose own files mark them


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
        assert f"jaxrag data psgs_w100 --workdir={tmp_path}" in said


def test_a_record_names_sets_splits_sizes_and_corpora() -> None:
    (found,) = origins(Benchmark("nq"))
    licence = found.pop("licence")
    assert isinstance(licence, str) and licence.startswith("CC BY-SA 3.0")
    assert str(found.pop("source")).startswith("https://")
    assert found == {"set": "nq", "split": "test", "split_questions": 3610, "corpus": "psgs_w100"}
    drawn = origins(Draw(Benchmark("boolq", "train"), Benchmark("boolq")))
    assert [one["split"] for one in drawn] == ["train", "dev"]
    assert origins(Folder("x")) == []


def test_the_record_of_a_run_has_them(tmp_path: Path) -> None:
    passages = write_passages(corpus_directory("psgs_w100", tmp_path), [Passage("1", "", "text")])
    rows = [LabelledQuestion(Question("q", "who is it", ("a",)))]
    write_questions(set_directory("nq", tmp_path), {"test": rows})
    run = Run(few_shot.Config(), Benchmark("nq"), Local(), cache=str(tmp_path))
    dataset, questions = load_questions(run, tmp_path)
    assert dataset.passages.identity == passages.identity
    record = settings_record(run, dataset, questions)["dataset"]
    assert record["published"][0]["split"] == "test" and record["name"] == "nq"
    assert record["questions"] == record["passages"] == 1
