"""Trainable RRR: a rewriter that was warmed up, trained by PPO (Ma et al. 2023): REWARD@DATA.

    python -m experiments.run --config configs/train_rrr.py:hit@factbook_known \
        --config.checkpoint=runs/optimizer/optimizer --workdir runs/rrr

The checkpoint is a T5's or, with ``+decoder`` as in ``hit+decoder@factbook``, one of our decoder's;
configs/train_query_optimizer.py makes both from another model's queries. What is trained lies in
``runs/rrr/optimizer``, which ``configs/errr.py:trainable_rrr@DATA`` takes as
``--config.method.rewriter.model.checkpoint``. With ``--config.seeds=3`` it is trained three times,
each in a directory of its own; curves.jsonl and ppo.jsonl are of all of them, with intervals.

Rewards:

- ``qa``: EM + F1 of the reader's answer, and 1 where what it reads holds an answer, -1 where not.
- ``hit``: 1 where what would be read holds a gold passage, -1 where not; no reader is asked.

Data: those of `configs.errr`, trained on the training part of the draw and evaluated on the
test questions: ``tiny``, ``factbook``, ``factbook_known`` (for a rewriter that began with random
weights), ``popqa``, ``ambigqa``, ``hotpotqa``. ``paper-popqa`` and so on: the first 1,000
questions, learning rate 2e-5, 3 epochs, batches of 8 (ERRR, docs/methods.md, "ERRR: PPO"); for a
GPU or TPU, not run by us.

`benchmarks.ppo_toy` is a task that needs no checkpoint and no data.
"""

from __future__ import annotations

import dataclasses

from configs.errr import PAPER, method_of, parts_of, run_on
from jaxrag.methods.errr.ppo.job import TrainRrr
from jaxrag.methods.errr.ppo.rewards import Worth
from jaxrag.training.ppo.settings import KlControl, PPOTraining
from jaxrag.types import InputError

WORTH = {"qa": Worth(), "hit": Worth(exact_match=0.0, f1=0.0, gold=True)}
SMALL = PPOTraining(
    steps=200,
    rollouts=64,
    batch=16,
    passes=2,
    discount=1.0,
    learning_rate=1e-4,
    kl=KlControl(0.02, 0.2),
    save_every=20,
    evaluate_every=20,
)
"""For a T5 of about a million parameters on 2 cores; a decoder learns at `DECODER_RATE`."""

DECODER_RATE = 2e-5


def get_config(variant: str = "hit@factbook_known") -> TrainRrr:
    """The job of a variant.

    Raises:
      InputError: no such variant.
    """
    reward, student, data, paper = parts_of(variant)
    if reward not in WORTH:
        raise InputError(f"no reward {reward!r}; there are {', '.join(WORTH)}.")
    method = method_of("trainable_rrr", student, data, paper)
    run = run_on(method, data, paper=paper, part="train")
    evaluation_data = run_on(method, data, paper=paper).data
    if paper:
        learns = PPOTraining(batch=8, learning_rate=2e-5, evaluate_every=10)
        # as many as there are, where there are fewer
        drawn = dataclasses.replace(PAPER[data], part="train", train=min(PAPER[data].train, 1000))
        run = dataclasses.replace(run, data=drawn)
        return TrainRrr(run, evaluation_data, training=learns, worth=WORTH[reward], max_source=512)
    learns = SMALL
    if student:
        learns = dataclasses.replace(SMALL, learning_rate=DECODER_RATE)
    if data == "tiny":
        learns = dataclasses.replace(learns, steps=2, rollouts=4, batch=2, evaluate_every=1)
    return TrainRrr(run, evaluation_data, training=learns, worth=WORTH[reward], max_target=24)
