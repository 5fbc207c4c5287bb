"""Runs of R3 over SiDR: told beforehand, built, answered, resumed, refused."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from jaxrag.engines.local.engine import LocalModel
from jaxrag.evaluation.records import read_run
from jaxrag.methods import dtr
from jaxrag.methods.r3 import r3
from jaxrag.models.bert.sidr import write_sidr
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs import shares
from jaxrag.runs.config_file import load
from jaxrag.runs.parts import load_questions, open_index
from jaxrag.runs.plan import plan
from jaxrag.runs.run import Run, execute
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run
from tests.retrieval.sidr import small_sidr


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> Run:
    """R3 over a random SiDR with a random model."""
    here = tmp_path_factory.mktemp("sidr")
    run = load(str(write_small_run(here, questions=12)))
    reader = Reader(prompts=str(here / "prompts.toml"), answer_tokens=4)
    method = r3.Config(candidates=OnePath(n=3), select=Top(k=2), reader=reader)
    index = Sidr(str(small_sidr.write(here)), m=5, top=6, query_length=16, passage_length=24)
    return dataclasses.replace(run, method=method, index=index)


def searching(run: Run, search: Any, **changes: Any) -> Run:
    assert isinstance(run.index, Sidr)
    return dataclasses.replace(run, index=dataclasses.replace(run.index, search=search, **changes))


@pytest.mark.parametrize("search", ["late", "alpha"])
def test_a_run_is_planned_executed_and_resumed(
    small: Run, tmp_path: Path, monkeypatch: Any, search: Any
) -> None:
    run = dataclasses.replace(searching(small, search), cache=str(tmp_path / "cache"))
    before = dict(plan(run, tmp_path / "run"))["index"]
    assert before.startswith(f"sidr-0, SiDR {search}: ") and before.endswith(", not built yet")
    assert not (tmp_path / "cache" / "indexes").exists()
    assert execute(run, tmp_path / "run")["errors"] == 0
    after = dict(plan(run, tmp_path / "run"))
    assert after["index"].endswith(", built") and ": 12 answered, 0 left" in after["run"]
    found = read_run(tmp_path / "run")
    about = found.config["retriever"]["sidr"]
    assert about["search"] == search and about.get("m") == (5 if search == "late" else None)
    for record in found.records:
        (one,) = record["trace"]["searches"]
        assert len(one["ids"]) == 3 and one["scores"] == sorted(one["scores"])[::-1]
        assert record["trace"]["task"] == "open" and record["cost"]["searches"] == 1
        assert record["trace"]["selected"]["ids"] == one["ids"][:2]
        # every question's gold answer is "a", an article, which normalising takes away
        assert record["top_holds_answer"] is False
    monkeypatch.setattr(LocalModel, "generate_each", None)  # the store answers a second run
    tracked: list[Any] = []
    monkeypatch.setattr(
        shares,
        "tracking",
        lambda directory, **_: contextlib.nullcontext(lambda *one: tracked.append(one)),
    )
    result = execute(run, tmp_path / "again")
    assert result["errors"] == 0
    (_, first), last = tracked
    assert first["progress"]["questions"] == 12 and last == (12, {"result": result})
    again = (tmp_path / "again" / "answers.jsonl").read_bytes()
    assert again == (tmp_path / "run" / "answers.jsonl").read_bytes()


def test_settings_that_share_an_index(small: Run, tmp_path: Path) -> None:
    """Tokens serve every network with this tokenizer; vectors are of one network."""
    dataset, _ = load_questions(small, Path(small.cache))

    def directory(search: Any, **changes: Any) -> Path:
        index: Any = searching(small, search, **changes).index
        return index.status(dataset.passages, tmp_path).directory

    bert, module, params = small_sidr.parts(tmp_path, seed=3)
    trained = str(write_sidr(tmp_path / "trained", module, params, begun_with=bert))
    assert directory("late") == directory("beta") == directory("late", m=9, top=2)
    assert directory("late", checkpoint=trained) == directory("late")
    assert directory("late", bag_length=9) != directory("late")
    assert directory("alpha") == directory("parametric") == directory("alpha", m=9, bag_length=9)
    others = [directory("alpha", checkpoint=trained), directory("alpha", top=5)]
    others += [directory("alpha", passage_length=9), directory("alpha", dtype="bfloat16")]
    begun = {"checkpoint": str(bert)}
    others += [directory("alpha", **begun), directory("alpha", scale=0.5, **begun)]
    others += [directory("late"), directory("alpha")]
    assert len(set(others)) == len(others)
    assert directory("alpha", scale=0.5) == directory("alpha")  # a trained one has its own


def test_the_vector_index_does_not_keep_the_text_s_own_tokens(small: Run) -> None:
    run = searching(small, "parametric")
    index: Any = open_index(run, Path(run.cache))
    assert index.index.manifest.settings["length"] == 6 < index.encoder.entries
    assert index.encoder.own_tokens  # of questions they stay


def test_invalid_settings_are_refused(small: Run, tmp_path: Path) -> None:
    nameless = dataclasses.replace(small, index=Sidr(""))
    with pytest.raises(InputError, match=r"set --config\.index.checkpoint=DIRECTORY"):
        plan(nameless)
    with pytest.raises(InputError, match="allows 3 to 64 tokens"):
        execute(searching(small, "late", passage_length=65), tmp_path / "run")
    vectors = dataclasses.replace(small, method=dtr.Config())
    with pytest.raises(
        InputError,
        match=r"dtr compares vectors, and the index sidr-0, SiDR late has",
    ):
        plan(vectors)
    deep = dataclasses.replace(small.method, candidates=OnePath(n=6))
    found = execute(dataclasses.replace(small, method=deep), tmp_path / "deep")
    assert found["errors"] == 12
    (said,) = {record["error"] for record in read_run(tmp_path / "deep").records}
    assert "6 passages are requested, but late search reranks 5: raise m" in said


def test_a_plan_does_not_download_a_hub_checkpoint(small: Run, monkeypatch: Any) -> None:
    import huggingface_hub

    def fetch(*_: Any, local_files_only: bool = False, **__: Any) -> str:
        assert local_files_only, "the network was asked"
        raise OSError

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    told = dict(plan(dataclasses.replace(small, index=Sidr("hub:none/of-these"))))["index"]
    assert told.endswith(", not built; the run downloads its encoder")
