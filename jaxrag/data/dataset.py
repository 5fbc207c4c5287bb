"""Data sets: questions, the corpus that answers them, and the gold passages of each question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from jaxrag.core.hashing import digest_bytes
from jaxrag.retrieval.corpus import rows as row_files
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.types import InputError, Question

_KIND = "questions"
_FIELDS = {"id": str, "text": str, "answers": list, "choices": list, "task": str, "gold": list}
_ROWS_PER_READ = 1024


class Dataset(NamedTuple):
    """Questions and a corpus.

    Attributes:
      name: for records and tables.
      questions: the questions.
      passages: the corpus.
      gold: ids of the gold passages of each question that has them, by question id. All of them are
        in ``passages``.
      identity: SHA-256 of the questions, their gold passages and the corpus.
    """

    name: str
    questions: Sequence[Question]
    passages: Passages
    gold: Mapping[str, tuple[str, ...]]
    identity: str


class DataSettings(Protocol):
    """Settings that load a data set."""

    def load(self, cache: Path) -> Dataset:
        """Loads the data set; converted or generated data are kept under ``cache``."""
        ...


class LabelledQuestion(NamedTuple):
    """A question and the ids of its gold passages; empty where they are not known."""

    question: Question
    gold: tuple[str, ...] = ()


def write_questions(
    directory: Path,
    splits: Mapping[str, Iterable[LabelledQuestion]],
    *,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Writes the questions of each split as a TFDS data set; ``about`` is kept in its manifest.

    Raises:
      InputError: the directory is not empty, or a split has no questions.
    """
    row_files.write_rows(
        directory,
        {split: _rows(questions) for split, questions in splits.items()},
        kind=_KIND,
        fields=_FIELDS,
        about=about,
    )


def read_dataset(name: str, questions: Path, passages: Passages, *, split: str) -> Dataset:
    """One split of a directory of `write_questions`, with its corpus.

    Raises:
      InputError: the directory is incomplete or damaged, or has no such split.
    """
    manifest = row_files.read_manifest(questions, kind=_KIND)
    if split not in manifest.rows:
        others = ", ".join(sorted(manifest.rows)) or "none in any other"
        raise InputError(f"{name} has no questions in split {split!r}; it has {others}")
    read, count = row_files.open_rows(questions, split), manifest.rows[split]
    labelled = [
        _labelled(row)
        for start in range(0, count, _ROWS_PER_READ)
        for row in read(range(start, min(start + _ROWS_PER_READ, count)))
    ]
    content = "\n".join([manifest.identity, split, passages.identity])
    return Dataset(
        name=name,
        questions=tuple(question for question, _ in labelled),
        passages=passages,
        gold={question.id: gold for question, gold in labelled if gold},
        identity=digest_bytes(content.encode()),
    )


def _rows(questions: Iterable[LabelledQuestion]) -> Iterator[dict[str, Any]]:
    for question, gold in questions:
        yield {
            "id": question.id,
            "text": question.text,
            "answers": list(question.answers),
            "choices": list(question.choices),
            "task": question.task,
            "gold": list(gold),
        }


def _labelled(row: Mapping[str, Any]) -> LabelledQuestion:
    fields = {name: value for name, value in row.items() if name != "gold"}
    return LabelledQuestion(Question(**fields), row["gold"])
