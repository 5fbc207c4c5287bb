"""Data sets from directories of JSONL files.

- ``queries.jsonl``, ``train.jsonl`` or another file of questions: ``{"id", "question", "answers"}``
  and optionally ``choices``.
- ``corpus.jsonl``: ``{"id", "text"}`` and optionally ``title``.
- ``qrels.jsonl``, optional: gold passages as ``{"query_id", "passage_ids"}``.

Other fields are ignored. The files are checked line by line and converted to TFDS data sets once
for each content.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from jaxrag.core.hashing import digest, digest_bytes, digest_file
from jaxrag.core.jsonl_input import read_input
from jaxrag.data.dataset import (
    Dataset,
    GoldPassage,
    LabelledQuestion,
    read_dataset,
    write_questions,
)
from jaxrag.data.question_kinds import check_task, with_task
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.types import InputError, Passage, Question

_log = logging.getLogger("jaxrag")

# Part of the names of converted directories: increase it when the conversion changes.
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Folder:
    """Questions and corpus of a directory of JSONL files.

    Attributes:
      path: the directory.
      split: name of the file of questions without ``.jsonl``: "queries" or "train".
      corpus: directory whose ``corpus.jsonl`` is searched; "" is ``path``. Gold passages that are
        not in another directory's corpus are dropped; in its own corpus a missing one is an error.
      task: of all questions: "yes_no", "fact_checking", "labels", or "open" to decide for each
        question (see `jaxrag.data.question_kinds`).
      labels: of the task "labels", such as yes, no and maybe; without any, a question's ``choices``
        are its labels.
    """

    path: str
    split: str = "queries"
    corpus: str = ""
    task: str = "open"
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_task(self.task, self.labels)

    def load(self, cache: Path) -> Dataset:
        """Loads the directory; the first time, checks and converts it under ``cache``.

        Raises:
          InputError: naming the file, line and field that is wrong; or a gold answer does not fit
            the task.
        """
        root, passages = _convert(Path(self.path), Path(cache), self.split, self.corpus)
        dataset = read_dataset(Path(self.path).name, root, passages, split=self.split)
        if self.task == "open":
            return dataset
        questions = tuple(with_task(q, self.task, self.labels) for q in dataset.questions)
        identity = digest(" ".join([dataset.identity, self.task, *self.labels]))
        return dataset._replace(questions=questions, identity=identity)


def _convert(source: Path, cache: Path, split: str, corpus: str) -> tuple[Path, Passages]:
    """The directory of converted questions, and the converted corpus."""
    questions = _file(source, split, "a folder of queries.jsonl, train.jsonl and corpus.jsonl")
    searched = _file(Path(corpus or source), "corpus", _CORPUS_HELP)
    qrels = source / "qrels.jsonl"
    corpus_root = cache / f"corpus-{_digest(searched)}"
    if not is_complete(corpus_root):
        _write_corpus(corpus_root, searched)
    passages = Passages.open(corpus_root)
    own = searched.parent.resolve() == source.resolve()
    parts = [_digest(questions), _digest(qrels) if qrels.is_file() else "", passages.identity, own]
    root = cache / f"{split}-{_short(json.dumps(parts))}"
    if not is_complete(root):
        gold = _read_gold(qrels) if qrels.is_file() else {}
        parsed = _read_questions(questions)
        _check_gold_questions(source, questions, parsed, gold)
        write_questions(root, {split: _label(parsed, gold, passages, qrels, own=own)})
    return root, passages


_CORPUS_HELP = "the passages to search; data.corpus can name another folder"


def _file(folder: Path, name: str, purpose: str) -> Path:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder ({purpose})")
    path = folder / f"{name}.jsonl"
    if not path.is_file():
        present = ", ".join(sorted(found.name for found in folder.glob("*.jsonl"))) or "no JSONL"
        raise InputError(f"{path}: no such file ({purpose}); the folder has {present}")
    return path


def _digest(path: Path) -> str:
    return _short(f"{_FORMAT} {digest_file(path)}")


def _short(text: str) -> str:
    return digest_bytes(text.encode())[:16]


def _write_corpus(directory: Path, path: Path) -> None:
    passages = (
        Passage(line.string("id"), line.string("title", optional=True), line.string("text"))
        for line in read_input(path)
    )
    try:
        write_passages(directory, passages)
    except InputError as error:
        # write_passages does not know the file
        message = str(error)
        raise InputError(message if str(path) in message else f"{path}: {message}") from None


def _read_questions(path: Path) -> dict[str, Question]:
    questions: dict[str, Question] = {}
    for line in read_input(path):
        question = Question(
            id=line.string("id"),
            text=line.string("question"),
            answers=line.strings("answers"),
            choices=line.strings("choices", optional=True),
        )
        if question.id in questions:
            raise line.error("id", f"{question.id!r} is the id of an earlier line too")
        questions[question.id] = question
    if not questions:
        raise InputError(f"{path}: no questions; the file is empty")
    return questions


def _read_gold(path: Path) -> dict[str, tuple[str, ...]]:
    """Ids of gold passages by question id."""
    gold: dict[str, tuple[str, ...]] = {}
    for line in read_input(path):
        query = line.string("query_id")
        if query in gold:
            raise line.error("query_id", f"{query!r} has an earlier line too")
        gold[query] = line.strings("passage_ids")
    return gold


def _check_gold_questions(
    source: Path,
    path: Path,
    questions: Mapping[str, Question],
    gold: Mapping[str, tuple[str, ...]],
) -> None:
    """Refuses gold passages of a question that is in no file of the folder."""
    unknown = gold.keys() - questions.keys()
    for other in (source / "queries.jsonl", source / "train.jsonl"):
        if unknown and other != path and other.is_file():
            unknown -= _read_questions(other).keys()
    if unknown:
        raise InputError(
            f"{source / 'qrels.jsonl'}: field 'query_id': {min(unknown)!r} ({len(unknown)} in all)"
            " is the id of no question in the folder"
        )


def _label(
    questions: Mapping[str, Question],
    gold: Mapping[str, tuple[str, ...]],
    passages: Passages,
    qrels: Path,
    *,
    own: bool,
) -> list[LabelledQuestion]:
    """Questions with those of their gold passages that the corpus has."""
    labelled, missing = [], 0
    for question in questions.values():
        listed = tuple(dict.fromkeys(gold.get(question.id, ())))
        present = tuple(passage for passage in listed if _has(passages, passage))
        if own and present != listed:
            unknown = next(passage for passage in listed if passage not in present)
            raise InputError(
                f"{qrels}: field 'passage_ids' of query {question.id!r}: corpus.jsonl beside it"
                f" has no passage {unknown!r}"
            )
        missing += len(listed) - len(present)
        labelled.append(LabelledQuestion(question, tuple(map(GoldPassage, present))))
    if missing:
        _log.info("%s: dropped %d gold passages that the searched corpus lacks", qrels, missing)
    return labelled


def _has(passages: Passages, passage_id: str) -> bool:
    try:
        passages.row_of(passage_id)
    except KeyError:
        return False
    return True
