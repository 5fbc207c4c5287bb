"""A data set: questions, the passages they are answered from, and which of those are gold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.retrieval import rows as row_files
from jaxrag.retrieval.passages import Passages
from jaxrag.types import InputError, Question

_KIND = "questions"
_FIELDS = {"id": str, "text": str, "answers": list, "choices": list, "task": str, "gold": list}
_ROWS_PER_READ = 1024


class Dataset(NamedTuple):
    """What a run is about.

    ``gold`` gives, for the questions where it is known, the ids of the passages that hold the
    answer or what it follows from; all of them are in ``passages``. ``identity`` is a hash of
    the content: of these questions, of their gold passages and of the passages.
    """

    name: str
    questions: Sequence[Question]
    passages: Passages
    gold: Mapping[str, tuple[str, ...]]
    identity: str


class Labelled(NamedTuple):
    """A question and the ids of its gold passages, as it is written; none if not known."""

    question: Question
    gold: tuple[str, ...] = ()


def write_questions(
    directory: Path,
    splits: Mapping[str, Iterable[Labelled]],
    *,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write the questions of each split as a TFDS data set; ``about`` goes into its manifest.

    Raises:
      InputError: the directory holds something already, or a split is empty.
    """
    row_files.write_rows(
        directory,
        {split: _rows(questions) for split, questions in splits.items()},
        kind=_KIND,
        fields=_FIELDS,
        about=about,
    )


def read_dataset(name: str, questions: Path, passages: Passages, *, split: str) -> Dataset:
    """The data set of one split of ``write_questions`` over a corpus.

    Raises:
      InputError: the directory is unfinished or damaged, or has no such split.
    """
    manifest = row_files.read_manifest(questions, kind=_KIND)
    if split not in manifest.rows:
        others = ", ".join(sorted(manifest.rows)) or "none in any other"
        raise InputError(f"{name} has no questions in split {split!r}; it has {others}")
    read, count = row_files.open_rows(questions, split), manifest.rows[split]
    found = [
        _labelled(row)
        for start in range(0, count, _ROWS_PER_READ)
        for row in read(range(start, min(start + _ROWS_PER_READ, count)))
    ]
    content = "\n".join([manifest.identity, split, passages.identity])
    return Dataset(
        name=name,
        questions=tuple(question for question, _ in found),
        passages=passages,
        gold={question.id: gold for question, gold in found if gold},
        identity=hashlib.sha256(content.encode()).hexdigest(),
    )


def about_questions(questions: Path) -> dict[str, Any]:
    """What ``write_questions`` was told to keep."""
    return row_files.read_manifest(questions, kind=_KIND).about


def _rows(questions: Iterable[Labelled]) -> Iterator[dict[str, Any]]:
    for question, gold in questions:
        yield {
            "id": question.id,
            "text": question.text,
            "answers": list(question.answers),
            "choices": list(question.choices),
            "task": question.task,
            "gold": list(gold),
        }


def _labelled(row: Mapping[str, Any]) -> Labelled:
    fields = {name: value for name, value in row.items() if name != "gold"}
    return Labelled(Question(**fields), row["gold"])
