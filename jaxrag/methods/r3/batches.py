"""Which passages each question of a step of R3 learns from.

Source: docs/methods.md, "R3: labels and draws".
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from jaxrag.core.store import Store
from jaxrag.engines.scheduler import gather
from jaxrag.methods.r3.contrastive import Batch
from jaxrag.methods.r3.judge import Judge, Prepared, label
from jaxrag.methods.r3.labels import Drawn, draw, enough
from jaxrag.methods.r3.search import Search
from jaxrag.methods.r3.settings import Training
from jaxrag.methods.r3.sidr_training import make_batch
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.sidr.encoder import SidrEncoder


class Searcher(Protocol):
    """Finds passages with an encoder whose parameters change."""

    def at(self, encoder: SidrEncoder, step: int) -> Search:
        """How they are found with the parameters before a step."""
        ...


@dataclasses.dataclass
class Teacher:
    """Makes batches: which passages each question learns from."""

    prepared: Sequence[Prepared]
    passages: Passages
    encoder: SidrEncoder
    searcher: Searcher
    judge: Judge
    store: Store
    settings: Training
    asked: dict[int, set[int]]

    def batch(
        self, encoder: Callable[[], SidrEncoder], numbers: np.ndarray, step: int, online: bool
    ) -> tuple[Batch, dict[str, Any]]:
        """A batch for the questions ``numbers``, and the figures of how it came about."""
        here = [int(number) for number in numbers]
        texts = [self.prepared[number].question.text for number in here]
        found: list[Sequence[int]] = [()] * len(here)
        known: list[list[tuple[float, ...]]] = [[] for _ in here]
        figures: dict[str, Any] = {"online": online}
        imitates = self.settings.update.objective == "kl"
        if online:
            found, known, seconds = self._explore(encoder(), here, step, everything=imitates)
            figures |= seconds
        elif imitates:
            found = [self._pool(number)[: self.settings.passages] for number in here]
            known = self._ask(here, found, everything=True)
        if imitates:
            rows, targets = self._all(found, known, here)
            return self._made(texts, rows, targets), figures
        drawn = [
            self._draw(number, rows, values, step)
            for number, rows, values in zip(here, found, known, strict=True)
        ]
        figures["online_positives"] = sum(one.online[0] for one in drawn)
        figures["online_negatives"] = sum(one.online[1] for one in drawn)
        figures["asked"] = sum(map(len, self.asked.values())) / len(self.prepared)
        return self._made(texts, [[one.positive, one.negative] for one in drawn], None), figures

    def _explore(
        self, encoder: SidrEncoder, numbers: Sequence[int], step: int, *, everything: bool
    ) -> tuple[list[Sequence[int]], list[list[tuple[float, ...]]], dict[str, float]]:
        """What the retriever finds, what the model makes of it, and the seconds of each."""
        most = self.settings.passages if everything else None
        places = np.array_split(np.array(numbers), min(self.settings.parts, len(numbers)))
        groups = [[int(number) for number in group] for group in places]
        found: list[Sequence[int]] = []
        known: list[list[tuple[float, ...]]] = []
        spent: Counter[str] = Counter()

        search = self.searcher.at(encoder, step)
        texts = [[self.prepared[number].question.text for number in group] for group in groups]
        with ThreadPoolExecutor(1) as pool:
            waiting = [pool.submit(search, some) for some in texts]
            for group, ahead in zip(groups, waiting, strict=True):
                rankings, seconds = ahead.result()
                rows = [ranking.ids[:most] for ranking in rankings]
                began = time.monotonic()
                known += self._ask(group, rows, everything=everything)
                found += rows
                spent.update(seconds | {"scoring_seconds": time.monotonic() - began})
        return found, known, {name: round(value, 3) for name, value in spent.items()}

    def _made(self, texts: Sequence[str], rows: Any, targets: Any) -> Batch:
        tokenizer = self.encoder.tokenizer
        return make_batch(texts, rows, self.passages, self.encoder, tokenizer, targets)

    def _pool(self, number: int) -> tuple[int, ...]:
        """The passages of a question before training."""
        pool = self.prepared[number].pool
        return (*pool.positives, *pool.negatives)

    def _all(
        self, found: Sequence[Sequence[int]], known: Sequence[Any], numbers: Sequence[int]
    ) -> tuple[list[Sequence[int]], np.ndarray]:
        """Equally many passages of each question, with log P(y|q,d) of its likeliest answer."""
        least = min(map(len, found))
        targets = [[max(values) for values in some[:least]] for some in known]
        return [rows[:least] for rows in found], np.array(targets, np.float32)

    def _draw(
        self, number: int, found: Sequence[int], known: Sequence[Sequence[float]], step: int
    ) -> Drawn:
        question, pool = self.prepared[number]
        rules = self.settings.rules
        labels = [label(question, values, pool, rules) for values in known]
        random = np.random.default_rng([self.settings.seed, step, number])
        return draw(found, labels, pool, rules, random)

    def _ask(
        self, numbers: Sequence[int], found: Sequence[Sequence[int]], *, everything: bool
    ) -> list[list[tuple[float, ...]]]:
        """log P of the first passages found: of all, or until the labels suffice."""
        known: list[list[tuple[float, ...]]] = [[] for _ in numbers]

        def task(place: int) -> Callable[[], Any]:
            question, pool = self.prepared[numbers[place]]
            rows = list(found[place])
            ahead = len(rows) if everything else self.settings.ahead

            async def walk() -> list[tuple[float, ...]]:
                values: list[tuple[float, ...]] = []
                labels: list[int] = []
                while rows[len(values) :] and not enough(labels, self.settings.rules):
                    some = self.passages.get(rows[len(values) : len(values) + ahead])
                    values += await gather(*(self.judge.logprobs(question, p) for p in some))
                    labels = [label(question, v, pool, self.settings.rules) for v in values]
                return values

            return walk

        places = ((place, task(place)) for place in range(len(numbers)))
        for place, values in self.judge.run(self.store, places):
            known[place] = values
            asked = self.asked.setdefault(numbers[place], set())
            asked |= set(found[place][: len(values)]) - {*self._pool(numbers[place])}
        return known
