"""labels.jsonl, from which ARS-RAG's ranker is trained.

Source: docs/methods.md, "ARS-RAG: rewrites and labels" (equation 6).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from jaxrag.methods.ars import labels
from jaxrag.methods.ars.table_figures import labels_table
from jaxrag.runs.job import Outcome, answered, write_table
from jaxrag.runs.run import Run
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class MakeLabels:
    """Writes labels of the rewrites of each question.

    Attributes:
      run: of the method `jaxrag.methods.ars.labels`.
    """

    file: ClassVar[str] = "labels.jsonl"

    run: Run

    def __post_init__(self) -> None:
        if not isinstance(self.run.method, labels.Config):
            raise InputError(f"run.method is {self.run.method}; labels need ars.labels.Config.")

    def execute(self, workdir: str | Path) -> Outcome:
        """Executes the run, then writes labels.jsonl.

        Raises:
          InputError: questions failed, or what the run raises.
        """
        lines = [label_line(record) for record in answered(self.run, workdir).records]
        return write_table(Path(workdir) / self.file, lines, labels_table(lines))


def label_line(record: Mapping[str, Any]) -> dict[str, Any]:
    """The line of labels.jsonl that a question's record gives.

    Labels y_i (docs/methods.md, "ARS-RAG: rewrites and labels") by the model's word and by its
    probabilities, each null where that was not asked for, and by the gold passages where they are
    known.
    """
    trace = record["trace"]
    passages = [search["ids"] for search in trace["searches"]]
    judged, gold = trace["judged"], set(record["gold_passages"])

    def table(by: str, field: str) -> list[list[Any]] | None:
        if by not in judged:
            return None
        return [[judged[by][name][field] for name in ids] for ids in passages]

    def counts(verdicts: list[list[int]] | None) -> list[int] | None:
        return None if verdicts is None else [sum(ids) for ids in verdicts]

    relevant = {by: table(by, "relevant") for by in ("word", "logprob")}
    held = [[int(name in gold) for name in ids] for ids in passages] if gold else None
    return {
        "question_id": record["question_id"],
        "question": record["question"],
        "rewrites": trace["rewrites"]["texts"],
        "filled": trace["rewrites"]["filled"],
        "passages": passages,
        "relevant": relevant["word"],
        "labels": counts(relevant["word"]),
        "relevant_logprob": relevant["logprob"],
        "probability": table("logprob", "probability"),
        "labels_logprob": counts(relevant["logprob"]),
        "junk": sum(map(sum, table("word", "junk") or [])),
        "gold": held,
        "labels_gold": counts(held),
    }
