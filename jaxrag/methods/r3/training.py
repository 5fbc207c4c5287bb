"""R3: a retriever trained by the effect of its passages on a language model's answers.

Each question has pools of passages that helped or misled the model
(`jaxrag.methods.r3.environment.make_pools`). In the warm-up a step draws a positive and a negative
passage of each question from its pools. Then the retriever searches with its current parameters,
the language model gives P(y|q,d) of the passages found until the labels suffice, and both are drawn
from these, or from the pools if there are none. The contrastive loss updates the retriever.

Source: docs/methods, "R3: algorithm" and "R3: labels and draws".
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from jaxrag.core.durable_files import write_text
from jaxrag.core.store import Store
from jaxrag.engines.scheduler import gather
from jaxrag.methods.r3.contrastive import (
    ContrastiveBatch,
    Evaluate,
    Keep,
    TowersEncoder,
    make_batch,
    train_towers,
)
from jaxrag.methods.r3.environment import Environment, PooledQuestion, gold_logprob, label
from jaxrag.methods.r3.labels import draw, enough, with_both
from jaxrag.methods.r3.search import Searcher, step_name
from jaxrag.methods.r3.settings import R3Training
from jaxrag.models import processes
from jaxrag.models.bert.towers import Towers
from jaxrag.models.processes import shared
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.training.step import TrainState, TrainStep
from jaxrag.training.trainer import shuffled_batches

SCORED = "scored.json"
"""Number of passages outside its pools that were scored in the training, by question id."""

Logprobs = list[tuple[float, ...]]
"""log P(y|q,d) of each answer y, for the first passages retrieved for a question."""


class Retrieved(NamedTuple):
    """Number of a question, rows of the passages that a search found, best first, and
    log-probabilities of the first of them.
    """

    number: int
    rows: Sequence[int] = ()
    logprobs: Logprobs = []  # noqa: RUF012


class _Order:
    """Endless batches of question numbers; its state includes the passages scored so far."""

    def __init__(self, questions: int, settings: R3Training) -> None:
        self._items = shuffled_batches(
            range(questions), settings.batch, seed=settings.seed, name="questions with pools"
        )
        self.scored: dict[int, set[int]] = {}

    def __next__(self) -> Any:
        return next(self._items)

    def get_state(self) -> Any:
        scored = {str(number): sorted(rows) for number, rows in sorted(self.scored.items())}
        return {"order": self._items.get_state(), "asked": scored}

    def set_state(self, state: Any) -> None:
        self._items.set_state(state["order"])
        self.scored.clear()
        self.scored |= {int(number): set(rows) for number, rows in state["asked"].items()}


def train(
    pooled: Sequence[PooledQuestion],
    passages: Passages,
    encoder: TowersEncoder,
    searcher: Searcher,
    environment: Environment,
    store: Store,
    settings: R3Training,
    directory: Path,
    *,
    evaluate: Evaluate | None = None,
    keep: Keep | None = None,
    devices: Sequence[Any] | None = None,
) -> Towers:
    """Trains from an encoder's parameters, resuming from a checkpoint in ``directory``.

    ``scored.json`` gets the number of passages that were scored for each question, those of its
    pools left out: the paper's nDoc. The metrics of a step include whether it is "online", how many
    positives and negatives were retrieved rather than drawn from pools ("online_positives",
    "online_negatives"), the mean of that number so far ("asked"), and the seconds of search,
    re-ranking and scoring, and of waiting for the update of the step before, without which no
    search can begin.

    Args:
      pooled: questions with their pools.
      encoder: with the initial parameters.
      evaluate, keep, devices: see `train_towers`.

    Of several processes each searches and scores its share of a batch, see
    `jaxrag.models.processes`; each has a language model. InputError if settings or data do not fit
    each other or ``directory``, or the loss is NaN.
    """
    order = _Order(len(pooled), settings)
    steps = settings.steps_over(len(pooled))
    batches = BatchMaker(
        pooled, passages, encoder, searcher, environment, store, settings, order.scored
    )

    def step(
        of_batch: TrainStep, state: TrainState, numbers: np.ndarray, at: int
    ) -> tuple[TrainState, dict[str, Any]]:
        current, began = None, time.monotonic()
        if settings.is_online(at, steps):
            params = jax.block_until_ready(of_batch.params(state))
            current = encoder.with_params(params, step_name(at))
        waited = round(time.monotonic() - began, 3)
        batch, metrics = batches.make(current, numbers.tolist(), at)
        state, figures = of_batch.update(state, batch, at)
        return state, metrics | figures | {"update_seconds": waited}

    params = train_towers(
        encoder,
        order,
        settings,
        directory,
        questions=len(pooled),
        name="training R3",
        step=step,
        evaluate=evaluate,
        keep=keep,
        devices=devices,
    )
    if processes.is_first():
        counts = {one.question.id: len(order.scored.get(n, ())) for n, one in enumerate(pooled)}
        write_text(directory / SCORED, json.dumps(counts) + "\n")
    return params


@dataclasses.dataclass
class BatchMaker:
    """Chooses the passages that each question of a step learns from."""

    pooled: Sequence[PooledQuestion]
    passages: Passages
    encoder: TowersEncoder
    searcher: Searcher
    environment: Environment
    store: Store
    settings: R3Training
    scored: dict[int, set[int]] = dataclasses.field(default_factory=dict)
    """Rows of the passages outside a question's pools that were scored, by its number."""

    def make(
        self, encoder: TowersEncoder | None, numbers: Sequence[int], step: int
    ) -> tuple[ContrastiveBatch, dict[str, Any]]:
        """The batch of a step, and its metrics.

        ``encoder`` retrieves passages with the current parameters; without it, they are drawn from
        the pools alone. ``numbers`` are of the questions.
        """
        retrieved, metrics = [Retrieved(number) for number in numbers], {}
        if encoder is not None:
            retrieved, metrics = self._explore(encoder, numbers, step)
        if self._imitates:
            rows, further = self._sets(retrieved, step), {}
            targets = self._targets(numbers, rows)
        else:
            (rows, further), targets = self._pairs(retrieved, step), None
        texts = [self.pooled[number].question.text for number in numbers]
        batch = make_batch(texts, rows, self.passages, self.encoder, targets=targets)
        return batch, {"online": encoder is not None, **metrics, **further}

    @property
    def _imitates(self) -> bool:
        """Whether the retriever imitates P(y|q,d) of all passages found, without labels."""
        return self.settings.update.objective == "kl"

    def _pairs(
        self, retrieved: Sequence[Retrieved], step: int
    ) -> tuple[list[list[int]], dict[str, Any]]:
        """A positive and a negative passage of each question."""
        pairs, online = [], Counter(online_positives=0, online_negatives=0)
        for entry in retrieved:
            pool, random = self.pooled[entry.number].pool, self._random(entry, step)
            drawn = draw(entry.rows, self._labels(entry), pool, self.settings.rules, random)
            pairs.append([drawn.positive, drawn.negative])
            online.update(online_positives=drawn.online[0], online_negatives=drawn.online[1])
        asked = sum(map(len, self.scored.values())) / len(self.pooled)
        return pairs, {**online, "asked": asked}

    def _sets(self, retrieved: Sequence[Retrieved], step: int) -> list[list[int]]:
        """Passages of each question, positive and negative ones: as many as all questions have."""
        pools = [self.pooled[entry.number].pool for entry in retrieved]
        available = [
            len({*entry.rows, *pool.rows}) for entry, pool in zip(retrieved, pools, strict=True)
        ]
        count = min(self.settings.passages, *available)
        return [
            with_both(entry.rows, self._labels(entry), pool, count, self._random(entry, step))
            for entry, pool in zip(retrieved, pools, strict=True)
        ]

    def _targets(
        self, numbers: Sequence[int], sets: Sequence[Sequence[int]]
    ) -> Float[np.ndarray, "n m"]:
        """log P(y|q,d) of the gold answer for each passage; the store has those of retrieval."""
        pairs = [*zip(numbers, sets, strict=True)]
        scored = self._noted(pairs, shared(pairs, self._score))
        targets = [
            [gold_logprob(self.pooled[number].question, values) for values in logprobs]
            for number, _, logprobs in scored
        ]
        return np.array(targets, np.float32)

    def _labels(self, retrieved: Retrieved) -> list[int]:
        """Labels of the first passages retrieved for a question."""
        question, pool = self.pooled[retrieved.number]
        return [label(question, ys, pool, self.settings.rules) for ys in retrieved.logprobs]

    def _random(self, retrieved: Retrieved, step: int) -> np.random.Generator:
        """Of the draws for a question: the same after an interruption, and in all processes."""
        return np.random.default_rng([self.settings.seed, step, retrieved.number])

    def _explore(
        self, encoder: TowersEncoder, numbers: Sequence[int], step: int
    ) -> tuple[list[Retrieved], dict[str, Any]]:
        """Passages that a search returns, with log-probabilities, and the seconds of each part.

        The next part of the batch is searched for while the language model scores one. Of several
        processes, the seconds are those of this one.
        """
        most = self.settings.passages if self._imitates else None
        search = self.searcher.at(encoder, step)
        spent: Counter[str] = Counter()

        def explore(numbers: Sequence[int]) -> list[tuple[list[int], Logprobs]]:
            parts = np.array_split(np.array(numbers), min(self.settings.parts, len(numbers)))
            groups: list[list[int]] = [part.tolist() for part in parts]
            texts = [[self.pooled[number].question.text for number in group] for group in groups]
            explored: list[tuple[list[int], Logprobs]] = []
            with ThreadPoolExecutor(1) as pool:
                waiting = [pool.submit(search, some) for some in texts]
                for group, searching in zip(groups, waiting, strict=True):
                    rankings, seconds = searching.result()
                    rows = [[*map(int, ranking.ids[:most])] for ranking in rankings]
                    began = time.monotonic()
                    logprobs = self._score([*zip(group, rows, strict=True)])
                    explored += zip(rows, logprobs, strict=True)
                    spent.update(seconds | {"scoring_seconds": time.monotonic() - began})
            return explored

        explored = shared(numbers, explore)
        pairs = [(number, rows) for number, (rows, _) in zip(numbers, explored, strict=True)]
        retrieved = self._noted(pairs, [logprobs for _, logprobs in explored])
        return retrieved, {name: round(value, 3) for name, value in spent.items()}

    def _noted(
        self,
        pairs: Sequence[tuple[int, Sequence[int]]],
        logprobs: Sequence[Sequence[Sequence[float]]],
    ) -> list[Retrieved]:
        """Questions' passages with the scores of the first ones, which are noted as scored."""
        retrieved = []
        for (number, rows), values in zip(pairs, logprobs, strict=True):
            scored = self.scored.setdefault(number, set())
            scored |= set(rows[: len(values)]) - {*self.pooled[number].pool.rows}
            retrieved.append(Retrieved(number, rows, [tuple(ys) for ys in values]))
        return retrieved

    def _score(self, pairs: Sequence[tuple[int, Sequence[int]]]) -> list[Logprobs]:
        """log P(y|q,d) of the first passages of each question, until their labels suffice.

        The objective "kl" scores all. ``pairs``: number of a question, rows found for it.
        """
        tasks = ((place, partial(self._score_one, *pair)) for place, pair in enumerate(pairs))
        logprobs = dict(self.environment.run(self.store, tasks))
        return [logprobs[place] for place in range(len(pairs))]

    async def _score_one(self, number: int, ranking: Sequence[int]) -> Logprobs:
        (question, pool), rows, rules = self.pooled[number], list(ranking), self.settings.rules
        ahead = len(rows) if self._imitates else self.settings.ahead
        values: Logprobs = []
        labels: list[int] = []
        while rows[len(values) :] and not enough(labels, rules):
            some = self.passages.get(rows[len(values) : len(values) + ahead])
            values += await gather(*(self.environment.logprobs(question, p) for p in some))
            labels = [label(question, value, pool, rules) for value in values]
        return values
