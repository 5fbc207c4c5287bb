"""Files of a user converted once for each content, under the cache of runs.

A converted corpus or set of questions lies in a directory whose name has the hash of all that it
was made from, so that a changed file is converted again and an unchanged one never.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from jaxrag.core.hashing import digest, digest_bytes
from jaxrag.data.dataset import Dataset, LabelledQuestion, read_dataset, write_questions
from jaxrag.data.question_kinds import check_task, with_task
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.types import InputError, Passage

_log = logging.getLogger("jaxrag")


@dataclasses.dataclass(frozen=True)
class QuestionFiles:
    """Questions of a user's files, and the corpus to search.

    Attributes:
      path: of the files.
      split: which of the questions.
      corpus: what is searched; "" is the passages that come with the questions. Gold passages that
        another corpus lacks are dropped, which the log counts.
      task: of all questions: "yes_no", "fact_checking", "labels", or "open" to decide for each
        question (see `jaxrag.data.question_kinds`).
      labels: of the task "labels", such as yes, no and maybe; without any, a question's ``choices``
        are its labels.
    """

    path: str
    split: str
    corpus: str = ""
    task: str = "open"
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_task(self.task, self.labels)

    def converted(self, name: str, root: Path, passages: Passages, *, corpus: str = "") -> Dataset:
        """The data set of the questions that were converted to ``root``.

        The settings' task and labels are given to all questions, unless the task is "open".

        Raises:
          InputError: a gold answer does not fit the task.
        """
        dataset = read_dataset(name, root, passages, split=self.split, corpus=corpus)
        if self.task == "open":
            return dataset
        questions = tuple(with_task(one, self.task, self.labels) for one in dataset.questions)
        identity = digest(" ".join([dataset.identity, self.task, *self.labels]))
        return dataset._replace(questions=questions, identity=identity)


def short_hash(text: str) -> str:
    """The first 64 bits of a text's SHA-256, in hex."""
    return digest_bytes(text.encode())[:16]


def convert_corpus(
    cache: Path, key: str, source: Path, passages: Callable[[], Iterable[Passage]]
) -> Passages:
    """A corpus in ``cache/data/corpus-KEY``, made from ``passages()`` if it is not there.

    Raises:
      InputError: from reading or writing; it names ``source``.
    """
    root = cache / "data" / f"corpus-{key}"
    if not is_complete(root):
        try:
            write_passages(root, passages())
        except InputError as error:
            # write_passages does not know the file
            message = str(error)
            raise InputError(
                message if str(source) in message else f"{source}: {message}"
            ) from None
    return Passages.open(root)


def convert_questions(
    cache: Path, split: str, key: str, questions: Callable[[], Iterable[LabelledQuestion]]
) -> Path:
    """The directory ``cache/data/SPLIT-KEY`` of questions, made from ``questions()`` if need be."""
    root = cache / "data" / f"{split}-{key}"
    if not is_complete(root):
        write_questions(root, {split: questions()})
    return root


def keep_present(
    questions: Iterable[LabelledQuestion], passages: Passages, source: Path, *, corpus: str = ""
) -> Iterator[LabelledQuestion]:
    """Questions without the gold passages of ``corpus`` that the corpus lacks; logs their number.

    Gold passages of other corpora are dropped, too.
    """
    missing = 0
    for question, gold in questions:
        named = [one for one in dict.fromkeys(gold) if one.corpus == corpus]
        there = passages.has([one.id for one in named])
        present = tuple(itertools.compress(named, there))
        missing += len(named) - len(present)
        yield LabelledQuestion(question, present)
    if missing:
        _log.info("%s: dropped %d gold passages that the searched corpus lacks", source, missing)
