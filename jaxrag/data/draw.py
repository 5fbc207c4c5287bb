"""Training and test questions drawn from a data set: so many of each, the same for a seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from jaxrag.data.dataset import Dataset
from jaxrag.engines.store import canonical, digest
from jaxrag.types import InputError, Question

Part = Literal["both", "train", "test"]


@dataclasses.dataclass(frozen=True)
class Draw:
    """Questions drawn at random without replacement, training questions first.

    Attributes:
      of: the data that training questions are drawn from, and test questions after them.
      tests: other data over the same passages that test questions are drawn from; None is ``of``.
      part: which are asked.
      train, test: how many of each.
      seed: of the draw.
      gold: draws only from questions whose gold passages are known.
    """

    of: Any
    tests: Any = None
    part: Part = "both"
    train: int = 300
    test: int = 100
    seed: int = 0
    gold: bool = False

    def __post_init__(self) -> None:
        if self.part not in get_args(Part):
            raise InputError(f"data.part is {self.part!r}; allowed: {', '.join(get_args(Part))}.")
        if min(self.train, self.test) < 0 or self.train + self.test < 1:
            raise InputError(
                f"data.train is {self.train} and data.test {self.test}: 0 or more questions, and "
                "at least one in all."
            )

    def load(self, cache: Path) -> Dataset:
        """Reads the data and draws.

        Raises:
          InputError: there are too few questions, or the two sources search different passages.
        """
        source = self.of.load(cache)
        other = source if self.tests is None else self.tests.load(cache)
        if other.passages.identity != source.passages.identity:
            raise InputError(
                f"Training questions of {source.name} and test questions of {other.name} are over "
                "different passages: give both the same corpus."
            )
        if self.tests is None:
            drawn = self._drawn(source, self.train + self.test)
            train, test = drawn[: self.train], drawn[self.train :]
        else:
            train, test = self._drawn(source, self.train), self._drawn(other, self.test)
        parts = {"both": (*train, *test), "train": train, "test": test}
        gold = {**other.gold, **source.gold}
        content = [source.identity, other.identity, *dataclasses.astuple(self)[2:]]
        return Dataset(
            source.name,
            parts[self.part],
            source.passages,
            {q.id: gold[q.id] for q in parts[self.part] if q.id in gold},
            digest(canonical(content)),
        )

    def part_of(self, number: int) -> str:
        """Whether the question at a place, from 0, is one to train on or to test."""
        if self.part != "both":
            return self.part
        return "train" if number < self.train else "test"

    def _drawn(self, source: Dataset, count: int) -> Sequence[Question]:
        known = [q for q in source.questions if not self.gold or source.gold.get(q.id)]
        if count > len(known):
            which = " with gold passages" if self.gold else ""
            raise InputError(
                f"{count} questions are to be drawn from {source.name}, which has {len(known)}"
                f"{which}: lower data.train or data.test."
            )
        order = np.random.default_rng(self.seed).permutation(len(known))
        return tuple(known[i] for i in order[:count])
