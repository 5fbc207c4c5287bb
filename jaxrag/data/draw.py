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
      train, test: numbers of training and test questions. If only one part is drawn from a source
        with fewer questions, it has all of them, with a warning.
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
        numbers = {"train": self.train, "test": self.test}
        if min(numbers.values()) < 0 or numbers.get(self.part, sum(numbers.values())) < 1:
            raise InputError(
                f"data.train is {self.train} and data.test {self.test}: neither may be negative, "
                f"and data.part={self.part} needs at least one question."
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
        train, test = self._shuffled(source), self._shuffled(other)
        train, spare = train[: self.train], train[self.train :]
        if self.test_source is None:
            test, spare = spare, spare[self.test :]
        test = test[: self.test]
        if self.part != "test":
            train = self._without_leaks(train, test, spare, source.name)
        self._check_numbers(train, test, source.name, other.name)
        parts = {"both": (*train, *test), "train": train, "test": test}
        merged = {**other.gold, **source.gold}
        gold = {"train": source.gold, "test": other.gold}.get(self.part, merged)
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

    def _shuffled(self, source: Dataset) -> Sequence[Question]:
        """All questions that may be drawn, in random order."""
        eligible = [q for q in source.questions if not self.only_gold or source.gold.get(q.id)]
        order = np.random.default_rng(self.seed).permutation(len(eligible))
        return tuple(eligible[i] for i in order)

    def _check_numbers(
        self, train: Sequence[Question], test: Sequence[Question], source: str, other: str
    ) -> None:
        """InputError, or a warning, for fewer questions than are to be drawn."""
        kind = " with gold passages" * self.only_gold
        numbers = ("train", train, self.train, source), ("test", test, self.test, other)
        few = {
            part: f"{name} has {len(some)} of {number} {part} questions{kind}"
            for part, some, number, name in numbers
            if len(some) < number
        }
        both = self.test_source is None or self.part == "both"
        if few and both and min(self.train, self.test) > 0:
            raise InputError(f"{'; '.join(few.values())}: lower data.train or data.test.")
        for part, text in few.items():
            if self.part in (part, "both"):
                if not {"train": train, "test": test}[part]:
                    raise InputError(f"{text}.")
                _log.warning("%s", text)

    def _without_leaks(
        self,
        train: Sequence[Question],
        test: Sequence[Question],
        spare: Sequence[Question],
        name: str,
    ) -> Sequence[Question]:
        """Training questions without those of the test part; "drop" fills up with spare ones."""
        tested = [question_set(f"its test part (data.seed={self.seed})", (q.text for q in test))]
        pool = (*train, *spare) if self.leakage == "drop" else train  # others in place of leaks
        kept = without_leaks(
            pool, (q.text for q in pool), tested,
            name=name, leakage=self.leakage, field="config.data.leakage",
        )  # fmt: skip
        return kept[: len(train)]
