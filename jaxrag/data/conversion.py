"""Files of a user converted once for each content, into directories named by its hash."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from jaxrag.core.hashing import HashedFile, digest, digest_bytes, hashed_once, read_as_hashed
from jaxrag.core.jsonl_input import read_input, well_named
from jaxrag.data.dataset import Dataset, LabelledQuestion, read_dataset, write_questions
from jaxrag.data.question_kinds import check_task, with_chosen_answers, with_task
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.types import InputError, Passage

# Part of the names of converted directories: increase it when a reader's rows change.
_FORMAT = 3


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

    def converted(
        self,
        name: str,
        cache: Path,
        files: Sequence[Path],
        rows: Callable[[], Iterable[LabelledQuestion]],
        passages: Passages,
        *,
        corpus: str = "",
        form: str = "",
    ) -> Dataset:
        """The data set of some files, which are read if their content is not converted yet.

        The settings' task and labels are given to all questions, unless the task is "open". Gold
        answers that are letters of choices become the choices' texts.

        Args:
          name: of the data set.
          cache: the questions go to ``cache/data/SPLIT-KEY``.
          files, rows: all that the questions are read from, and what reads them.
          passages, corpus: the corpus, and its name if its gold passages are kept.
          form: what else decides the rows.

        InputError from reading, or if a gold answer does not fit the task or the choices.
        """
        hashed = [hashed_once(path, cache / "digests") for path in files]
        root = cache / "data" / f"{self.split}-{_key(hashed, form, corpus, passages.identity)}"
        if not is_complete(root):
            write_questions(root, {self.split: read_as_hashed(rows(), hashed)})
        dataset = read_dataset(name, root, passages, split=self.split, corpus=corpus)
        if self.task == "open":
            questions = tuple(map(with_chosen_answers, dataset.questions))
            changed = ["letters"] if questions != dataset.questions else []
        else:
            questions = tuple(with_task(q, self.task, self.labels) for q in dataset.questions)
            changed = [self.task, *self.labels]
        if self.task in ("open", "multiple_choice"):
            pairs = zip(questions, dataset.questions, strict=True)
            changed += ["choices"] if any(a.choices != b.choices for a, b in pairs) else []
        if not changed:
            return dataset
        identity = digest(" ".join([dataset.identity, *changed]))
        return dataset._replace(questions=questions, identity=identity)


def convert_corpus(
    cache: Path, files: Sequence[Path], passages: Callable[[], Iterable[Passage]], form: str = ""
) -> Passages:
    """A corpus in ``cache/data/corpus-KEY``, made from ``passages()`` of ``files`` if need be."""
    hashed = [hashed_once(path, cache / "digests") for path in files]
    root = cache / "data" / f"corpus-{_key(hashed, form)}"
    if not is_complete(root):
        try:
            write_passages(root, read_as_hashed(passages(), hashed))
        except InputError as error:
            # write_passages does not know the file
            message, source = str(error), str(files[0])
            raise InputError(message if source in message else f"{source}: {message}") from None
    return Passages.open(root)


def folder_corpus(file: Path, cache: Path) -> Passages:
    """The corpus of a folder's ``corpus.jsonl``, see `jaxrag.data.folder`."""

    def passages() -> Iterator[Passage]:
        for line in well_named(read_input(file), "title"):
            title = line.string("title", optional=True)
            yield Passage(line.string("id"), title, line.string("text"))

    return convert_corpus(cache, [file], passages, "folder")


def _key(files: Sequence[HashedFile], *settings: str) -> str:
    """The first 64 bits of a hash of the files' content and what else decides the rows, in hex."""
    text = json.dumps([_FORMAT, *settings, *(file.sha256 for file in files)])
    return digest_bytes(text.encode())[:16]
