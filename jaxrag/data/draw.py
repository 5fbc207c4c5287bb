"""Random training and test questions of a data set, reproducible by a seed."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from jaxrag.core.checks import check_choices
from jaxrag.core.hashing import canonical, digest
from jaxrag.data.dataset import Dataset, DataSettings
from jaxrag.data.leakage import Leakage, question_set, without_leaks
from jaxrag.types import InputError, Question

_log = logging.getLogger("jaxrag")

Part = Literal["both", "train", "test"]


@dataclasses.dataclass(frozen=True)
class Draw:
    """Random questions, drawn without replacement; training questions come first.

    Attributes:
      source: data of the training questions and, after them, the test questions.
      test_source: other data over the same corpus for the test questions; None is ``source``.
      part: which of the drawn questions the data set has.
      train, test: numbers of training and test questions. A ``test_source`` with fewer gives all.
      seed: of the random draw.
      only_gold: draw only questions with known gold passages.
      leakage: what happens to training questions whose text is that of a test question, see
        `jaxrag.data.leakage`; "drop" draws further questions in their place.
    """

    source: DataSettings
    test_source: DataSettings | None = None
    part: Part = "both"
    train: int = 300
    test: int = 100
    seed: int = 0
    only_gold: bool = False
    leakage: Leakage = "refuse"

    def __post_init__(self) -> None:
        check_choices(self, part=Part, leakage=Leakage)
        if min(self.train, self.test) < 0 or self.train + self.test < 1:
            raise InputError(
                f"data.train is {self.train} and data.test {self.test}; neither may be negative "
                "nor both 0."
            )

    def load(self, cache: Path) -> Dataset:
        """Loads the sources and draws; InputError for too few questions, or different corpora."""
        source = self.source.load(cache)
        other = source if self.test_source is None else self.test_source.load(cache)
        if other.passages.identity != source.passages.identity:
            raise InputError(
                f"Training questions of {source.name} and test questions of {other.name} have "
                "different corpora: give both data sets the same corpus."
            )
        if self.test_source is None:
            drawn = self._shuffled(source, self.train + self.test)
            train, test = drawn[: self.train], drawn[self.train :][: self.test]
            spare = drawn[self.train + self.test :]
        else:
            drawn = self._shuffled(source, 0 if self.part == "test" else self.train)
            train, spare = drawn[: self.train], drawn[self.train :]
            test = self._shuffled(other, 0)[: self.test]
            if len(test) < self.test and self.part != "train":
                _log.warning("%s has %d of %d test questions", other.name, len(test), self.test)
        if self.part != "test":
            train = self._without_leaks(train, test, spare, source.name)
        parts = {"both": (*train, *test), "train": train, "test": test}
        gold = {**other.gold, **source.gold}
        draw = [self.part, self.train, self.test, self.seed, self.only_gold]
        draw += [] if self.leakage == "refuse" else [self.leakage]
        return Dataset(
            source.name,
            parts[self.part],
            source.passages,
            {q.id: gold[q.id] for q in parts[self.part] if q.id in gold},
            digest(canonical([source.identity, other.identity, *draw])),
        )

    def part_of(self, number: int) -> str:
        """ "train" or "test" for the question at index ``number`` (from 0) of the data set."""
        if self.part != "both":
            return self.part
        return "train" if number < self.train else "test"

    def _shuffled(self, source: Dataset, count: int) -> Sequence[Question]:
        """All questions that may be drawn, in random order; at least ``count``."""
        eligible = [q for q in source.questions if not self.only_gold or source.gold.get(q.id)]
        if count > len(eligible):
            condition = " with gold passages" if self.only_gold else ""
            raise InputError(
                f"Cannot draw {count} questions from {source.name}, which has {len(eligible)}"
                f"{condition}: lower data.train or data.test."
            )
        order = np.random.default_rng(self.seed).permutation(len(eligible))
        return tuple(eligible[i] for i in order)

    def _without_leaks(
        self,
        train: Sequence[Question],
        test: Sequence[Question],
        spare: Sequence[Question],
        name: str,
    ) -> Sequence[Question]:
        """Training questions that are no test questions; as many, from the spare ones."""
        tested = [question_set(f"its test part (data.seed={self.seed})", (q.text for q in test))]

        def kept(some: Sequence[Question]) -> list[Question]:
            texts = (question.text for question in some)
            field = "config.data.leakage"
            return without_leaks(some, texts, tested, name=name, leakage=self.leakage, field=field)

        clean = kept(train)
        if len(clean) == len(train):
            return train
        usable = tuple(clean + kept(spare))[: len(train)]
        if len(usable) < len(train):
            raise InputError(
                f"Without those of the test part, {name} has {len(usable)} training questions, and "
                f"{len(train)} are wanted: lower data.train."
            )
        return usable
