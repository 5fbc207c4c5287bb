"""The reward table from which ARS-RAG's bandit is trained (docs/methods.md, "ARS-RAG: rewards")."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from jaxrag.core.durable_files import atomic_write, write_text
from jaxrag.core.hashing import canonical, digest
from jaxrag.data.draw import Draw
from jaxrag.evaluation.metrics import accuracy
from jaxrag.methods.ars import rewards
from jaxrag.methods.ars.bandit.reward_table import CONFIG, CONTEXTS, REWARDS
from jaxrag.methods.ars.table_figures import rewards_table
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.runs.job import Outcome, answered, write_table
from jaxrag.runs.run import Run, open_index
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class MakeRewards:
    """Writes a directory as `jaxrag.methods.ars.bandit.reward_table` reads it.

    Attributes:
      run: of the method `jaxrag.methods.ars.rewards`, over drawn questions to train on and to test.
    """

    file: ClassVar[str] = REWARDS

    run: Run

    def __post_init__(self) -> None:
        if not isinstance(self.run.method, rewards.Config):
            raise InputError(f"run.method is {self.run.method}; rewards need ars.rewards.Config.")
        if not isinstance(self.run.data, Draw):
            raise InputError(
                "A reward table has questions to train on and questions to test: give run.data as "
                "a jaxrag.data.draw.Draw."
            )

    def execute(self, workdir: str | Path) -> Outcome:
        """Executes the run, then writes rewards.jsonl, contexts.npy and config.json.

        Raises:
          InputError: questions failed, the index has no encoder, or what the run raises.
        """
        workdir, found = Path(workdir), answered(self.run, workdir)
        retriever = open_index(self.run, Path(self.run.cache))
        if isinstance(retriever, TextRetriever):
            raise InputError(
                "The bandit chooses by the question's vector, and the run's index has no encoder: "
                "choose an index with one, such as Exact."
            )
        texts = [record["question"] for record in found.records]
        with atomic_write(workdir / CONTEXTS) as stream:
            np.save(stream, np.asarray(retriever.embed(texts), np.float32), allow_pickle=False)
        data: Any = self.run.data
        parts = map(data.part_of, range(len(texts)))
        lines = [reward_line(*pair) for pair in zip(found.records, parts, strict=True)]
        encoder = json.loads(retriever.encoder.identity)
        config = _config(lines, encoder=encoder, run=found.config)
        write_text(workdir / CONFIG, json.dumps({"config": config}, indent=2) + "\n")
        return write_table(workdir / self.file, lines, rewards_table(lines))


def _config(lines: list[dict[str, Any]], *, encoder: Any, run: Mapping[str, Any]) -> dict[str, Any]:
    """What determines a table, as `reward_table` reads it."""
    return {
        "table": {
            "kind": "rewards",
            "arms": len(lines[0]["base"]),
            "questions": len(lines),
            "run": digest(canonical(run)),
        },
        "encoder": encoder,
        "dataset": run["dataset"],
        "method": run["method"],
    }


def reward_line(record: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The line of rewards.jsonl that a question's record gives; entry k - 1 is of k rewrites.

    The base reward is 1 for a correct answer and 0 for another; of an open question 1 for an exact
    match, otherwise token F1 (docs/methods.md, "ARS-RAG: rewards").
    """
    scored = [accuracy(text, record["gold_answers"]) for text in record["trace"]["answers"]]
    if not scored[0]:
        raise InputError(
            f"Question {record['question_id']} has no gold answer, so nothing can be earned."
        )
    columns = {name: [row[name] for row in scored] for name in ("exact_match", "f1", "contains")}
    task = record["trace"].get("task", "open")
    correct = columns["contains" if task == "fact_checking" else "exact_match"]
    graded = [max(row["exact_match"], row["f1"]) for row in scored]
    return {
        "question_id": record["question_id"],
        "question": record["question"],
        "part": part,
        "task": task,
        "predictions": record["trace"]["answers"],
        "exact_match": columns["exact_match"],
        "f1": columns["f1"],
        "correct": correct,
        "base": graded if task == "open" else correct,
    }
