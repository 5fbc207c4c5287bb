"""Training data of Adaptive-RAG's classifier.

``pairs.jsonl`` has a line a question: ``question_id``, ``part`` ("train" or "held_out", drawn by
the id), ``input`` and ``target``, what the classifier is given and is to write, and ``label_from``:
"silver" where a strategy answered rightly, "bias" where the data set decided. ``complexity.json``
counts them. A training needs questions of one hop and of more: join the files of several data sets.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.table import Table

from jaxrag.core.durable_files import write_text
from jaxrag.core.hashing import in_share
from jaxrag.evaluation.records import RunRecords
from jaxrag.methods.iterative import adaptive_labels
from jaxrag.methods.iterative.adaptive_rag import Strategy, classifier_template
from jaxrag.runs.table_job import TableJob
from jaxrag.types import InputError

COUNTS = "complexity.json"


@dataclasses.dataclass(frozen=True)
class MakeComplexityPairs(TableJob):
    """Writes the pairs of each question's prompt and label, pairs.jsonl and complexity.json."""

    file = "pairs.jsonl"
    method = adaptive_labels.Config

    def lines(self, records: RunRecords, workdir: Path) -> list[dict[str, Any]]:
        """The pairs of the questions that have a label; their counts go into complexity.json.

        Raises:
          InputError: no question is left to train on.
        """
        method = self.run.method
        assert isinstance(method, adaptive_labels.Config)  # __post_init__ refuses any other
        found = (pair_line(record, method) for record in records.records)
        lines = [line for line in found if line is not None]
        if not any(line["part"] == "train" for line in lines):
            raise InputError(
                f"{self.run.name}: no question is left to train on; label more questions, or set "
                "run.method.bias to another than drop."
            )
        write_text(workdir / COUNTS, json.dumps(_counted(lines), indent=2) + "\n")
        return lines

    def summary(self, lines: Sequence[Mapping[str, Any]]) -> Table:
        """Number of pairs by target: in all, to train on, and labelled by a right answer."""
        shown = Table("target", "questions", "to train on", "silver")
        for target in sorted({line["target"] for line in lines}):
            some = [line for line in lines if line["target"] == target]
            trained = sum(line["part"] == "train" for line in some)
            silver = sum(line["label_from"] == "silver" for line in some)
            shown.add_row(target, *map(str, (len(some), trained, silver)))
        return shown


def pair_line(record: Mapping[str, Any], method: adaptive_labels.Config) -> dict[str, Any] | None:
    """A line of pairs.jsonl: question as input, strategy as target; None if none is labelled."""
    template = classifier_template(method.reader.prompts)
    label = record["trace"]["label"]
    if label["strategy"] is None:
        return None
    place = get_args(Strategy).index(label["strategy"])
    name = record["question_id"]
    held_out = in_share(f"0 {name}", method.held_out)
    return {
        "question_id": name,
        "question": record["question"],
        "part": "held_out" if held_out else "train",
        "input": template.prompt(question=record["question"]),
        "target": template.words[place],
        "label_from": "silver" if label["silver"] else "bias",
    }


def _counted(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How many pairs there are of each part, target and origin."""
    return {
        field: dict(sorted(collections.Counter(line[field] for line in lines).items()))
        for field in ("part", "target", "label_from")
    }
