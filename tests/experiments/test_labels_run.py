"""A folder whose answers are labels of the user's own: answered, evaluated by class, reported."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from jaxrag.configs import baselines, r3
from jaxrag.data.folder import Folder
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.report.page import write_report
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.runs.config_file import load
from jaxrag.runs.edits import edited
from jaxrag.runs.run import Run, execute
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run
from tests.scripted import ScriptedModel, settings_of
from tests.words import WORDS_AND_BREAKS, word_tokenizer

FEW_SHOT: Any = baselines.get_config("few_shot@tiny")
TOKENIZER = word_tokenizer(WORDS_AND_BREAKS, chat=False)
LABELS = ("yes", "no", "not known")
CONFIGS: dict[str, Any] = {"few_shot": baselines, "r3": r3}
"""All methods answer labels in tests/methods/test_contract.py."""


def answering(method: Any, by: str) -> Any:
    return dataclasses.replace(method, reader=dataclasses.replace(method.reader, by=by))


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> Run:
    """Six questions, two of each label; the model is a tiny one with random weights."""
    here = tmp_path_factory.mktemp("labels")
    run = load(str(write_small_run(here, questions=6)))
    file = here / "data" / "queries.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows = [row | {"answers": [LABELS[i % 3]]} for i, row in enumerate(rows)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return edited(run, {"data.task": "labels", "data.labels": ",".join(LABELS)})


def number_of(shown: str) -> int:
    """The number that ends the question of a prompt, which is its last line with "is ..."."""
    return int(re.findall(r"is \w+ \w+ (\d+)", shown)[-1])


def knows(shown: Any, settings: Any) -> Any:
    """Right but for question 2, which it answers with no."""
    label = "no" if number_of(shown) == 2 else LABELS[number_of(shown) % 3]
    return f" {label.title()}"


def prefers(shown: str, label: str) -> list[float]:
    if "N/A" in shown:
        return [-1.0] * len(label.split())
    right = label.strip() == ("no" if number_of(shown) == 2 else LABELS[number_of(shown) % 3])
    return [-1.0, -0.1 if right else -5.0][-len(label.split()) :]


REPLY: Any = knows


@pytest.mark.parametrize("by", ["text", "calibrated"])
@pytest.mark.parametrize("name", CONFIGS)
def test_labels_run_end_to_end(name: str, by: str, small: Run, tmp_path: Path) -> None:
    run = CONFIGS[name].get_config(f"{name}@tiny")
    method = answering(run.method, by)
    run = dataclasses.replace(
        small,
        method=method,
        model=settings_of(lambda: ScriptedModel(REPLY, prefers, tokenizer=TOKENIZER)),
        index=Bm25() if run.index else None,
        reranker=None,
        store="memory",
    )
    found = execute(run, tmp_path / "run")
    assert found["answered"] == 6 and found["errors"] == 0
    # five of six, and of the class "not known" one of two
    assert found["means"]["exact_match"]["mean"] == pytest.approx(5 / 6)
    assert {n: (one["mean"], one["n"]) for n, one in found["classes"].items()} == {
        "yes": (1.0, 2), "no": (1.0, 2), "not known": (0.5, 2),
    }  # fmt: skip
    # precision: yes 2/2, no 2/3, not known 1/1
    assert found["means"]["precision_macro"]["mean"] == pytest.approx(8 / 9)
    assert "precision_positive" not in found["means"]
    assert read_run(tmp_path / "run").config["dataset"]["labels"] == list(LABELS)
    records = read_run(tmp_path / "run").records
    assert [record["prediction"] for record in records[:3]] == ["yes", "no", "no"]
    write_report([tmp_path / "run"], tmp_path / "report.html")
    table = (tmp_path / "report.md").read_text()
    assert "| accuracy by class, % | yes (n = 2) | no (n = 2) | not known (n = 2) |" in table
    assert "not known (n = 2)" in (tmp_path / "report.html").read_text()


def test_questions_without_answers_are_not_answered(small: Run, tmp_path: Path) -> None:
    folder = tmp_path / "judged"
    shutil.copytree(Path(small.data.path), folder)  # type: ignore[attr-defined]
    (folder / "queries.jsonl").write_text(json.dumps({"id": "q", "question": "is it"}) + "\n")
    run = dataclasses.replace(small, data=Folder(str(folder)))
    with pytest.raises(InputError, match=r"No question of judged has a gold answer.*retrieval\.py"):
        execute(run, tmp_path / "run")
    assert not (tmp_path / "run").exists()
