"""Data sets: questions, the corpus that answers them, and the gold passages of each question."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from jaxrag.core.hashing import digest, digest_bytes
from jaxrag.retrieval.corpus import rows as row_files
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.types import InputError, Passage, Question

_KIND = "questions"
FIELDS = {
    "id": str,
    "text": str,
    "answers": list,
    "choices": list,
    "task": str,
    "gold": list,
    "gold_corpora": list,
    "gold_grades": list,
}
"""Stored fields of a question, each a string or a list of strings."""

_ROWS_PER_READ = 1024

OWN = "contexts"
"""Name of the corpus of the passages that a set itself brings."""

OTHERS = "other-contexts"
"""The same corpus, in which a question does not find its own passages."""


class Dataset(NamedTuple):
    """Questions and a corpus.

    Attributes:
      gold: ids of the gold passages of each question that has them, by question id. Those that
        ``passages`` lacks are among them, as in trec_eval: no search can find them.
      identity: SHA-256 of the questions, their gold passages and the corpus.
      grades: relevance of all judged passages by question id and passage id, where it is graded;
        empty otherwise. 0 is not relevant.
      split: that the questions are of; "" for a draw.
    """

    name: str
    questions: Sequence[Question]
    passages: Passages
    gold: Mapping[str, tuple[str, ...]]
    identity: str
    grades: Mapping[str, Mapping[str, int]] = {}
    split: str = ""

    @property
    def label(self) -> str:
        """Name and split, for messages."""
        return f"{self.name} {self.split}".strip()


def unanswered(dataset: Dataset, questions: Sequence[Question]) -> str:
    """Says how many of the questions have no gold answer; "" if all have one."""
    count = sum(not question.answers for question in questions)
    if not count:
        return ""
    return (
        f"{count:,} of {len(questions):,} questions of {dataset.label} have no gold answer: "
        "they count in no mean of accuracy"
    )


def lacking(dataset: Dataset, questions: Sequence[Question]) -> str:
    """Says how many of the questions' gold passages the corpus lacks; "" if it has all."""
    gold = [passage for question in questions for passage in dataset.gold.get(question.id, ())]
    count = len(gold) - sum(dataset.passages.has(gold)) if gold else 0
    if not count:
        return ""
    return (
        f"{count:,} of {len(gold):,} gold passages of {dataset.label} are not in the corpus: "
        "they count as not found in recall and nDCG, as in trec_eval"
    )


class DataSettings(Protocol):
    """Settings that load a data set."""

    def load(self, cache: Path) -> Dataset:
        """Loads the data set; converted or generated data are kept under ``cache``."""
        ...


class GoldPassage(NamedTuple):
    """A passage that was judged for a question.

    Attributes:
      corpus: name of the corpus that has this id; "" is the corpus that the questions come with.
      grade: relevance; 0 is not relevant, and judgements that are not graded have 1.
    """

    id: str
    corpus: str = ""
    grade: int = 1


class LabelledQuestion(NamedTuple):
    """A question and its gold passages; empty where they are not known."""

    question: Question
    gold: tuple[GoldPassage, ...] = ()


class SetRow(NamedTuple):
    """A question of a published set, and its judged passages where the set marks them.

    ``contexts`` are passages that the set brings with it; one has the same id wherever it occurs.
    """

    question: Question
    gold: tuple[GoldPassage, ...] = ()
    contexts: tuple[Passage, ...] = ()


def context(title: str, text: str) -> Passage:
    """A passage that has no published id: its id is a hash of its title and text."""
    return Passage(digest(title, text)[:16], title, text)


def write_questions(
    directory: Path,
    splits: Mapping[str, Iterable[LabelledQuestion]],
    *,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Writes the questions of each split as a TFDS data set; ``about`` is kept in its manifest.

    InputError if the directory is not empty, or a split has no questions.
    """
    row_files.write_rows(
        directory,
        {split: map(stored_row, questions) for split, questions in splits.items()},
        kind=_KIND,
        fields=FIELDS,
        about=about,
    )


def read_dataset(
    name: str,
    questions: Path,
    passages: Passages,
    *,
    split: str,
    corpus: str = "",
    rows: range | None = None,
) -> Dataset:
    """Questions of one split of a directory of `write_questions`, with their corpus.

    Of gold passages those of ``corpus`` are kept; "" is the questions' own. ``rows``, numbers
    below the split's size, are the questions that are read; None is all. InputError if the
    directory is incomplete or damaged, or has no such split.
    """
    manifest = row_files.read_manifest(questions, kind=_KIND)
    if split not in manifest.rows:
        splits = ", ".join(sorted(manifest.rows)) or "none in any other"
        raise InputError(f"{name} has no questions in split {split!r}; it has {splits}")
    selection = range(manifest.rows[split]) if rows is None else rows
    labelled = [
        LabelledQuestion(question, tuple(passage for passage in gold if passage.corpus == corpus))
        for question, gold in read_questions(questions, split, selection)
    ]
    judged = {q.id: gold for q, gold in labelled if gold}
    relevant = {name: tuple(p.id for p in gold if p.grade > 0) for name, gold in judged.items()}
    grades = {name: {p.id: p.grade for p in gold} for name, gold in judged.items()}
    graded = any(grade != 1 for of_one in grades.values() for grade in of_one.values())
    parts = [manifest.identity, split, passages.identity]
    if corpus or rows is not None:
        parts += [corpus, f"{selection.start}:{selection.stop}:{selection.step}"]
    return Dataset(
        name=name,
        questions=tuple(question for question, _ in labelled),
        passages=passages,
        gold={name: ids for name, ids in relevant.items() if ids},
        identity=digest_bytes("\n".join(parts).encode()),
        grades=grades if graded else {},
        split=split,
    )


def without_themselves(dataset: Dataset) -> Dataset:
    """The data set in which no question finds the passage that has its id.

    Queries may be passages of the corpus, as in BEIR's ArguAna and Quora, whose evaluation leaves
    these out, too.
    """
    is_passage = dataset.passages.has([question.id for question in dataset.questions])
    questions = (
        dataclasses.replace(question, hidden=(question.id,)) if found else question
        for question, found in zip(dataset.questions, is_passage, strict=True)
    )
    return dataset._replace(questions=tuple(questions))


def without_own(dataset: Dataset) -> Dataset:
    """The data set in which no question finds its own gold passages; so none has any."""
    questions = (
        dataclasses.replace(question, hidden=dataset.gold.get(question.id, ()))
        for question in dataset.questions
    )
    identity = digest_bytes(f"{dataset.identity}\nwithout own".encode())
    return dataset._replace(questions=tuple(questions), gold={}, grades={}, identity=identity)


def split_sizes(directory: Path) -> Mapping[str, int]:
    """Number of questions by split in a directory of `write_questions`; InputError for another."""
    return row_files.read_manifest(directory, kind=_KIND).rows


def read_about(directory: Path) -> Mapping[str, Any]:
    """What `write_questions` was given to keep; InputError for another directory."""
    return row_files.read_manifest(directory, kind=_KIND).about


def read_questions(directory: Path, split: str, rows: range) -> Iterator[LabelledQuestion]:
    """The given questions of a split of a directory of `write_questions`, in their order."""
    read = row_files.open_rows(directory, split)
    for start in range(0, len(rows), _ROWS_PER_READ):
        for row in read(rows[start : start + _ROWS_PER_READ]):
            yield _labelled(row)


def stored_row(labelled: LabelledQuestion) -> dict[str, Any]:
    """A question's row in a data set on disk: its fields, gold passages as parallel lists."""
    question, gold = labelled
    return {
        "id": question.id,
        "text": question.text,
        "answers": list(question.answers),
        "choices": list(question.choices),
        "task": question.task,
        "gold": [passage.id for passage in gold],
        "gold_corpora": [passage.corpus for passage in gold],
        "gold_grades": [str(passage.grade) for passage in gold],
    }


def _labelled(row: Mapping[str, Any]) -> LabelledQuestion:
    """The question of a stored row; older directories have no corpora and grades."""
    fields = {name: value for name, value in row.items() if not name.startswith("gold")}
    ids = row["gold"]
    corpora = row.get("gold_corpora") or ("",) * len(ids)
    grades = row.get("gold_grades") or ("1",) * len(ids)
    gold = map(GoldPassage, ids, corpora, map(int, grades))
    return LabelledQuestion(Question(**fields), tuple(gold))
