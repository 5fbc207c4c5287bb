"""R3: a retriever trained by what its passages do to a language model's answers.

METHODS sections 3.3 to 3.7. Each question has pools of passages that helped and that misled the
model (`jaxrag.training.r3_judge.prepare`). The first part of training draws from them; the second
searches with the retriever as it is at that step, asks the model how probable the gold answer is
given what was found, and learns from those passages.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import grain
import jax
import numpy as np
from jax.sharding import Mesh

from jaxrag.engines.requests import gather
from jaxrag.engines.store import Store
from jaxrag.models.sidr import Towers
from jaxrag.retrieval.passages import Passages
from jaxrag.retrieval.sidr import SidrEncoder
from jaxrag.training import pieces
from jaxrag.training.contrastive import Batch, State, make_step
from jaxrag.training.loop import Watched, fit
from jaxrag.training.r3_judge import Judge, Prepared, label
from jaxrag.training.r3_labels import Drawn, Rules, draw, enough
from jaxrag.training.schedule import Schedule
from jaxrag.training.sidr import at_step, by_weights, make_batch
from jaxrag.types import InputError, Ranking

Phases = Literal["both", "offline", "online"]


class Searcher(Protocol):
    """Finds passages with an encoder whose parameters change."""

    def __call__(
        self, encoder: SidrEncoder, texts: Sequence[str], step: int
    ) -> tuple[list[Ranking], dict[str, float]]:
        """Rankings, and the seconds of their parts."""
        ...


@dataclasses.dataclass(frozen=True)
class Training(Schedule):
    """How R3 is trained; the defaults are the paper's.

    Attributes:
      phases: "both"; "offline" draws from the pools throughout (plain contrastive learning);
        "online" has no warm-up.
      warmup: share of the steps that draw from the pools.
      rules: labels and draws.
      ahead: passages of a question that the model is asked about at once; more fill its batches,
        fewer ask less of it. What is learned is the same.
      passages: most of them, and of a question's pools in the warm-up, that the objective "kl"
        learns from; it takes all that were found.
    """

    epochs: float = 80.0
    save_every: int = 50
    phases: Phases = "both"
    warmup: float = 0.5
    rules: Rules = Rules()
    ahead: int = 2
    passages: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.phases not in ("both", "offline", "online"):
            raise InputError(f"phases is {self.phases!r}; allowed are both, offline and online.")
        if not 0 <= self.warmup <= 1:
            raise InputError(f"warmup is {self.warmup}; it is a share from 0 to 1.")
        if self.ahead < 1 or self.passages < 2:
            raise InputError(
                f"ahead is {self.ahead} and passages {self.passages}: at least 1, and at least 2."
            )

    def is_online(self, step: int, steps: int) -> bool:
        """Whether step ``step``, from 0, learns from what the retriever finds."""
        if self.phases == "both":
            return step >= round(self.warmup * steps)
        return self.phases == "online"


class _Order:
    """Batches of numbers of questions, and which passages were asked about; see `loop.Data`."""

    def __init__(self, questions: int, settings: Training) -> None:
        if questions < settings.batch:
            raise InputError(
                f"{questions} questions are left to train on, fewer than a batch of "
                f"{settings.batch}: lower batch, or take more questions."
            )
        order = grain.MapDataset.range(questions).seed(settings.seed).shuffle().repeat()
        self._items = iter(order.batch(settings.batch).to_iter_dataset())
        self.asked: dict[int, set[int]] = {}

    def __next__(self) -> Any:
        return next(self._items)

    def get_state(self) -> Any:
        asked = {str(number): sorted(rows) for number, rows in sorted(self.asked.items())}
        return {"order": self._items.get_state(), "asked": asked}

    def set_state(self, state: Any) -> None:
        self._items.set_state(state["order"])
        self.asked = {int(number): set(rows) for number, rows in state["asked"].items()}


def train(
    prepared: Sequence[Prepared],
    passages: Passages,
    encoder: SidrEncoder,
    searcher: Searcher,
    judge: Judge,
    store: Store,
    settings: Training,
    directory: Path,
    *,
    watch: Callable[[SidrEncoder, int], Watched] | None = None,
    mesh: Mesh | None = None,
) -> Towers:
    """Trains from an encoder's parameters; goes on where an earlier call in ``directory`` stopped.

    Each step's figures tell the phase, how many positives and negatives came from what was found
    ("online_positives", "online_negatives"), how many passages a question were asked about so far
    ("asked", the paper's nDoc) and the seconds of search, re-ranking, scoring and update.

    Args:
      prepared: questions with pools.
      passages: the corpus.
      encoder: what training begins with.
      searcher: finds passages during training.
      judge: the language model.
      store: where its results are kept.
      settings: how.
      directory: for checkpoints and figures.
      watch: (encoder with the parameters of that step, step) -> each question's figures, such as
        accuracy.
      mesh: as of `pieces.data_mesh`; by default all devices.

    Raises:
      InputError: settings, data or what is in ``directory`` do not fit; the loss is NaN; or more
        than one process, each of which would need a language model.
    """
    if jax.process_count() > 1:
        raise InputError("R3 asks a language model as it goes: run it in one process.")
    mesh = mesh or pieces.data_mesh()
    pieces.check_batch(settings.batch, settings.piece, mesh)
    steps = settings.steps_over(len(prepared))
    module: Any = encoder.module  # of which a type checker does not know that it can be hashed
    change = make_step(module, settings.update, steps=steps, piece=settings.piece, mesh=mesh)
    order = _Order(len(prepared), settings)
    teacher = _Teacher(prepared, passages, encoder, searcher, judge, store, settings, order.asked)

    def step(state: State, numbers: np.ndarray, at: int) -> tuple[State, Mapping[str, Any]]:
        teacher.asked = order.asked
        batch, figures = teacher.batch(
            lambda: at_step(encoder, state, mesh, at), numbers, at, settings.is_online(at, steps)
        )
        began = time.monotonic()
        state, more = change.update(state, batch)
        loss = float(more["loss"])  # waits for the update
        return state, {
            **figures,
            "loss": loss,
            "norm": more["norm"],
            "update_seconds": round(time.monotonic() - began, 3),
        }

    state = fit(
        change.begin(encoder.params),
        order,
        step,
        steps=steps,
        directory=directory,
        what="training R3",
        save_every=settings.save_every,
        watch=(lambda state, at: watch(by_weights(encoder, state, mesh), at)) if watch else None,
        watch_every=settings.watch_every,
    )
    return pieces.apart(state.params, mesh)[0]


@dataclasses.dataclass
class _Teacher:
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
            rankings, seconds = self.searcher(encoder(), texts, step)
            most = self.settings.passages if imitates else None
            found = [ranking.ids[:most] for ranking in rankings]
            began = time.monotonic()
            known = self._ask(here, found, everything=imitates)
            figures |= seconds | {"scoring_seconds": round(time.monotonic() - began, 3)}
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
