"""R3: a retriever trained by what its passages do to a language model's answers.

docs/methods.md, "R3: algorithm". Each question has pools of passages that helped and that misled
the model (`jaxrag.methods.r3.judge.prepare`). The first part of training draws from them; the
second searches with the retriever as it is at that step, asks the model how probable the gold
answer is given what was found, and learns from those passages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grain
import jax
import numpy as np
from jax.sharding import Mesh

from jaxrag.core.store import Store
from jaxrag.methods.r3.batches import Searcher, Teacher
from jaxrag.methods.r3.contrastive import make_step
from jaxrag.methods.r3.judge import Judge, Prepared
from jaxrag.methods.r3.settings import Training
from jaxrag.methods.r3.sidr_training import at_step, by_weights
from jaxrag.models.bert.sidr import Towers
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.training import grad_cache
from jaxrag.training.loop import Evaluation, fit
from jaxrag.training.optimisation import TrainState
from jaxrag.types import InputError


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
    evaluate: Callable[[SidrEncoder, int], Evaluation] | None = None,
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
      evaluate: (encoder with the parameters of that step, step) -> each question's figures, such as
        accuracy.
      mesh: as of `grad_cache.data_mesh`; by default all devices.

    Raises:
      InputError: settings, data or what is in ``directory`` do not fit; the loss is NaN; or more
        than one process, each of which would need a language model.
    """
    if jax.process_count() > 1:
        raise InputError("R3 asks a language model as it goes: run it in one process.")
    mesh = mesh or grad_cache.data_mesh()
    grad_cache.check_batch(settings.batch, settings.microbatch, mesh)
    steps = settings.steps_over(len(prepared))
    module: Any = encoder.module  # of which a type checker does not know that it can be hashed
    change = make_step(
        module, settings.update, steps=steps, microbatch=settings.microbatch, mesh=mesh
    )
    order = _Order(len(prepared), settings)
    teacher = Teacher(prepared, passages, encoder, searcher, judge, store, settings, order.asked)

    def step(
        state: TrainState, numbers: np.ndarray, at: int
    ) -> tuple[TrainState, Mapping[str, Any]]:
        teacher.asked = order.asked
        batch, figures = teacher.batch(
            lambda: at_step(encoder, state, mesh, at), numbers, at, settings.is_online(at, steps)
        )
        began = time.monotonic()
        state, more = change.update(state, batch, at)
        jax.block_until_ready(state)  # the loss is there long before the parameters have changed
        return state, {
            **figures,
            "loss": more["loss"],
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
        evaluate=(lambda state, at: evaluate(by_weights(encoder, state, mesh), at))
        if evaluate
        else None,
        evaluate_every=settings.evaluate_every,
    )
    return grad_cache.local_arrays(state.params, mesh)[0]
