"""ARS-RAG's labels and reward tables, from which its ranker and its selector are trained.

    python -m experiments.run --config configs/ars_tables.py:labels@factbook \
        --workdir runs/labels
    python -m experiments.run --config configs/ars_tables.py:rewards@factbook \
        --workdir runs/rewards

KIND@DATA with the data of `configs.ars`, questions to train on and to test:

- ``labels``: of the training questions, which passages of each rewrite are relevant, by the model
  (``--config.run.method.judge.by=word`` asks for its word) and by the gold passages.
- ``gold``: the same by the gold passages alone, without asking the model for judgements.
- ``rewards``: what the answer from the first 1, 2, ... 10 rewrites as generated earns.
- ``ranked``: the same with rewrites in the order of a trained ranker,
  ``--config.run.method.order.ranker.checkpoint=DIRECTORY``.
"""

from __future__ import annotations

import dataclasses

from configs.ars import BY, CLOSED, DATA, judge_of, run_on, shared
from configs.parts import parts_of
from jaxrag.methods.ars import labels as ars_labels
from jaxrag.methods.ars import rewards as ars_rewards
from jaxrag.methods.ars.make_labels import MakeLabels
from jaxrag.methods.ars.make_rewards import MakeRewards
from jaxrag.methods.ars.rewrite_steps import Generated, Ranked
from jaxrag.types import InputError


def get_config(variant: str = "rewards@factbook") -> MakeLabels | MakeRewards:
    """The job of a kind of table on some data.

    Raises:
      InputError: no such kind, or no such data.
    """
    kind, data, paper = parts_of(variant, DATA)
    common = shared(paper)
    if kind in ("labels", "gold"):
        judge = judge_of(paper) if kind == "labels" else None
        method = ars_labels.Config(judge=judge, **common)
        run = run_on(method, data, paper=paper, part="train")
        return MakeLabels(dataclasses.replace(run, label=kind))
    if kind not in ("rewards", "ranked"):
        raise InputError(f"no table {kind!r}; there are labels, gold, rewards and ranked.")
    order = Ranked() if kind == "ranked" else Generated()
    closed, by = (20, "text") if paper else (CLOSED, BY)
    method = ars_rewards.Config(order=order, closed_tokens=closed, by=by, **common)
    run = run_on(method, data, paper=paper, part="both")
    return MakeRewards(dataclasses.replace(run, label=kind))
