"""Files of a user converted once for each content, under the cache of runs.

A converted corpus or set of questions lies in a directory whose name has the hash of all that it
was made from, so that a changed file is converted again and an unchanged one never.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path

from jaxrag.core.hashing import digest, digest_bytes
from jaxrag.data.dataset import Dataset, LabelledQuestion, read_dataset, write_questions
from jaxrag.data.question_kinds import check_task, with_chosen_answers, with_task
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.types import InputError, Passage

# Part of the names of converted directories: increase it when the rows of questions change.
_FORMAT = 2


@dataclasses.dataclass(frozen=True)
class QuestionFiles:
    """Questions of a user's files, and the corpus to search.

    Attributes:
      path: of the files.
      split: which of the questions.
      corpus: what is searched; "" is the passages that come with the questions. Gold passages that
        it lacks count as not found, and the log says how many there are.
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

        The settings' task and labels are given to all questions, unless the task is "open". Gold
        answers that are letters of choices become the choices' texts.

        Raises:
          InputError: a gold answer does not fit the task, or is none of the choices.
        """
        dataset = read_dataset(name, root, passages, split=self.split, corpus=corpus)
        if self.task == "open":
            questions = tuple(map(with_chosen_answers, dataset.questions))
            changed = ["letters"] if questions != dataset.questions else []
        else:
            questions = tuple(with_task(one, self.task, self.labels) for one in dataset.questions)
            changed = [self.task, *self.labels]
        if not changed:
            return dataset
        identity = digest(" ".join([dataset.identity, *changed]))
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
    """The directory in ``cache/data`` of questions, made from ``questions()`` if need be."""
    root = cache / "data" / f"{split}-{_FORMAT}-{key}"
    if not is_complete(root):
        write_questions(root, {split: questions()})
    return root
