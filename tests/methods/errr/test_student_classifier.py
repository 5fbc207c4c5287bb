"""A classifier that our loop trains says in a run of Adaptive-RAG what it learned."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.engines.local.engine import Local
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.methods.errr.student import TrainQueryOptimizer
from jaxrag.methods.iterative import adaptive_rag
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.reader import Reader
from jaxrag.training.student.student import NewT5
from jaxrag.training.student.training import StudentTraining
from jaxrag.types import Question
from tests.engines.tiny_model import write_tiny_model
from tests.methods.iterative.turns import Turns, WordIndex, run
from tests.training.processes import on_one_device

ASKS = {"A": "Who is number", "B": "When was", "C": "Where did it go after"}
"""How a question of each label begins."""


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    on_one_device(monkeypatch)


def questions() -> list[tuple[Question, str]]:
    return [
        (Question(f"{label}{i}", f"{asks} {i}?", ("x",)), label)
        for i in range(8)
        for label, asks in ASKS.items()
    ]


def write_pairs(directory: Path) -> str:
    template = adaptive_rag.classifier_template("iterative_small")
    lines = [
        {
            "question_id": one.id,
            "input": template.prompt(question=one.text),
            "target": label,
            "part": "held_out" if one.id.endswith(("0", "1")) else "train",
        }
        for one, label in questions()
    ]
    directory.mkdir()
    (directory / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(directory)


def begin(kind: str, directory: Path) -> dict[str, Any]:
    if kind == "t5":
        small = NewT5(vocabulary=300, width=32, inner=32, heads=2, head_width=16, layers=1)
        return {"new": small}
    write_tiny_model(directory / "decoder")
    return {"checkpoint": str(directory / "decoder")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "decoder"])
def test_a_run_uses_the_trained_classifier(kind: str, tmp_path: Path) -> None:
    how = StudentTraining(
        steps=40, batch=8, microbatch=8, learning_rate=1e-2, evaluate_every=40, save_every=40,
        best="accuracy",
    )  # fmt: skip
    settings = TrainQueryOptimizer(
        write_pairs(tmp_path / "pairs"), training=how, task="labels", max_source=64, max_target=8,
        **begin(kind, tmp_path),
    )  # fmt: skip
    settings.execute(tmp_path / "work")
    text = (tmp_path / "work" / "query_optimizer.jsonl").read_text()
    table = [json.loads(line) for line in text.splitlines()]
    trained = next(row for row in table if row["student"] == "trained")
    assert trained["accuracy"][0] == 1.0
    checkpoint = str(tmp_path / "work" / "optimizer")
    classifier = (Seq2Seq if kind == "t5" else Local)(checkpoint).load(tmp_path / "cache")
    config = adaptive_rag.Config(candidates=OnePath(n=1), reader=Reader(prompts="iterative_small"))
    for one, label in questions():
        if not one.id.endswith(("0", "1")):
            continue
        model = Turns("The sky is blue.", "So the answer is: 1830.", "1830", "1830")
        trace = run(config, model, WordIndex(), one, classifier=classifier).value.trace
        assert trace["complexity"]["label"] == label
        # sure of it, as of no text that it never learned to write
        assert max(trace["complexity"]["logprobs"]) > np.log(0.5)
