"""Data sets: which questions, and which passages they are asked over."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jaxrag.data import factbook, folder
from jaxrag.data.dataset import Dataset


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
    """

    path: str
    split: str = "queries"
    corpus: str = ""

    def load(self, cache: Path) -> Dataset:
        """Reads it, converting it on first use."""
        return folder.load(self.path, cache, split=self.split, corpus=self.corpus or None)
