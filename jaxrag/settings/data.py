"""Data sets: which questions, and which passages they are asked over."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jaxrag.data import factbook, folder
from jaxrag.data.dataset import Dataset
from jaxrag.engines.store import digest
from jaxrag.methods.kinds import TASKS, role_of
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class Factbook:
    """Questions and passages of the World Factbook.

    Attributes:
      split: "test" or "train" (the two share no country).
      countries: passages and questions of that many countries; 0 is all.
      words: most words of a passage.
    """

    split: str = "test"
    countries: int = 0
    words: int = 50

    def load(self, cache: Path) -> Dataset:
        """Reads it, building it on first use."""
        return factbook.load(
            cache, split=self.split, countries=self.countries or None, words=self.words
        )


@dataclasses.dataclass(frozen=True)
class Folder:
    """Questions and passages of a directory of JSONL files.

    Attributes:
      path: the directory.
      split: "queries" or "train".
      corpus: another directory whose passages are searched instead.
      task: of all its questions: "yes_no", "fact_checking" or, where they differ, "open".
    """

    path: str
    split: str = "queries"
    corpus: str = ""
    task: str = "open"

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise InputError(f"data.task is {self.task!r}; allowed: {', '.join(TASKS)}.")

    def load(self, cache: Path) -> Dataset:
        """Reads it, converting it on first use.

        Raises:
          InputError: the folder is not as it must be, or has a gold answer that its task forbids.
        """
        found = folder.load(self.path, cache, split=self.split, corpus=self.corpus or None)
        if self.task == "open":
            return found
        questions = tuple(dataclasses.replace(q, task=self.task) for q in found.questions)
        for question in questions:
            role_of(question)
        identity = digest(f"{found.identity} {self.task}")
        return found._replace(questions=questions, identity=identity)
