"""Reads and validates the file of labelled rewrites that a ranker is trained on.

``labels.jsonl`` has a line per question: ``question_id``, ``question``, ``rewrites`` (N texts) and
the number of relevant passages of each rewrite, y_i (docs/methods.md, "ARS-RAG: rewrites and
labels"): by the model's word (``labels``), by its log-probabilities (``labels_logprob``, or null)
and by the gold passages (``labels_gold``, or null). Other fields are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from jaxrag.core.jsonl_input import InputLine, read_input
from jaxrag.methods.ars.ranker.data import RankingExample
from jaxrag.runs.job import locate_file
from jaxrag.types import InputError

FILE = "labels.jsonl"

Label = Literal["model", "logprob", "gold"]
"""How passages were judged: by the model's word, its log-probabilities, or the gold passages."""

FIELDS: dict[str, str] = {"model": "labels", "logprob": "labels_logprob", "gold": "labels_gold"}


class Labelled(NamedTuple):
    """A question's rewrites with their labels by kind, see `Label`."""

    question_id: str
    question: str
    rewrites: tuple[str, ...]
    labels: Mapping[str, tuple[int, ...]]

    def example(self, label: str) -> RankingExample:
        """The question with labels of one kind."""
        return RankingExample(self.question_id, self.question, self.rewrites, self.labels[label])


def locate_labels(labels: str) -> Path:
    """The file ``labels``, or that in the directory ``labels``.

    Raises:
      InputError: it does not exist.
    """
    made = "experiments.run with configs/ars.py:make_labels@DATA"
    return locate_file(labels, FILE, field="labels", made=made)


def read_labels(path: Path, *, label: str) -> list[Labelled]:
    """All questions of a file.

    Args:
      path: see `locate_labels`.
      label: the kind that is trained on, which every line must have.

    Raises:
      InputError: a line is invalid (naming file, line and field), the file is empty, or no question
        has rewrites of different labels.
    """
    found: list[Labelled] = []
    lines: dict[str, int] = {}
    for line in read_input(path):
        one = _labelled(line, label)
        if one.question_id in lines:
            earlier = lines[one.question_id]
            raise line.error("question_id", f"is {one.question_id!r}, as in line {earlier}")
        lines[one.question_id] = line.number
        found.append(one)
    if not found:
        raise InputError(f"{path} is empty: there is no question to train a ranker on.")
    check_varied([one.example(label) for one in found], f"{path}, field {FIELDS[label]!r}")
    return found


def check_varied(examples: Sequence[RankingExample], where: str) -> None:
    """Refuses examples without an order to learn.

    Raises:
      InputError: naming ``where``: no question has rewrites of different labels.
    """
    if not any(len({*example.labels}) > 1 for example in examples):
        raise InputError(
            f"{where}: in none of the {len(examples)} questions do two rewrites differ in their "
            "labels, so there is no order to learn. Label more questions, or take other labels "
            f"(label is one of {', '.join(FIELDS)})."
        )


def _labelled(line: InputLine, label: str) -> Labelled:
    rewrites = line.strings("rewrites")
    if len(rewrites) < 2:
        raise line.error("rewrites", "has 1 item; two or more are ranked")
    labels = {
        kind: _counts(line, field, len(rewrites))
        for kind, field in FIELDS.items()
        if kind == label or line.fields.get(field) is not None
    }
    return Labelled(line.string("question_id"), line.string("question"), rewrites, labels)


def _counts(line: InputLine, field: str, rewrites: int) -> tuple[int, ...]:
    """A field with one whole number from 0 up for each rewrite."""
    if field not in line.fields:
        raise line.error(field, f"is missing; the line has {', '.join(line.fields)}")
    values = line.fields[field]
    if values is None:
        raise line.error(
            field, "is null: the rewrites were not judged this way; choose another label"
        )
    if not isinstance(values, list) or len(values) != rewrites:
        held = f"{len(values)} items" if isinstance(values, list) else "no list"
        raise line.error(field, f"has {held}; there are {rewrites} rewrites, one number for each")
    for place, value in enumerate(values, 1):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise line.error(field, f"item {place} is {value!r}; a whole number from 0 is needed")
    return tuple(values)
