"""PAIRS: retrieve where two answers of the model disagree; dual paths and AIS: METHOD@DATA.

Source: docs/methods, "PAIRS".

    jaxrag run --config configs/pairs.py:pairs@quickstart --workdir runs/pairs

- hardware: 2 CPU cores (AVX2), 2026-11-27
- minutes: 6 for four methods and the installation (``make quickstart``); not measured alone
- score: EM 25.0 [17.0, 33.0], F1 31.1 [22.7, 39.7] on 100 questions, with SmolLM2 (README)

Methods:

- ``pairs``, and with its gate's stricter rule ``pairs_exclude_num``.
- ``dpr_ais``: without the gate. Its ablations (Tables 2 to 5 of the paper): ``dpr_ais_rerank``,
  ``dpr_ais_dynamic`` and ``dpr_ais_cosine_sum`` select otherwise; ``dpr_ais_wo_dpr_q`` and
  ``dpr_ais_wo_dpr_p`` search by the question, or by the pseudo-context, alone;
  ``dpr_ais_wo_ais_2q1p`` and ``dpr_ais_wo_ais_1q2p`` read two of one search and one of the other.
- the baselines of the table, as in `configs.baselines` with PAIRS' prompts: ``no_retrieval``,
  ``standard_rag``, ``rerank``, ``hyde``, ``q2d``, ``cot``.
- ``gold_geometry`` measures where gold passages lie: cosines and ranks (the paper's Figures 5 to
  8). ``alpha`` does so for training questions and fits the dynamic weight (Figure 10, equation 8).

Data: `configs.data`; ``jaxrag list data`` prints the names, ``paper-NAME`` are the papers'.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxrag.configs.baselines import SINGLE_SEARCH, entries, prompted
from jaxrag.configs.data import SOURCES, training_of
from jaxrag.configs.parts import PAIRS, PASSAGE_TOKENS, SMALL, Entry, K, Variant, job_of
from jaxrag.data.dataset import DataSettings
from jaxrag.data.draw import Draw
from jaxrag.data.factbook import Factbook
from jaxrag.engines.local.engine import Local
from jaxrag.methods import gold_geometry, pairs
from jaxrag.methods.gold_geometry import GoldGeometry
from jaxrag.methods.pairs import AgreementGate
from jaxrag.methods.retrieve_and_read import DPR_AIS
from jaxrag.retrieval.dense.scann.index import Scann
from jaxrag.retrieval.settings import QueryLikelihood
from jaxrag.runs.job import Job
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import DualPath, FixedMix, OnePath
from jaxrag.steps.passage_selectors import AIS, Rerank, Top
from jaxrag.steps.reader import Reader

RUN = Run(
    method=pairs.Config(
        gate=AgreementGate(),  # of the answers without context and from a pseudo-context
        candidates=DualPath(n=5),  # by the question, and by the pseudo-context
        select=AIS(k=K),
        reader=SMALL,
    ),
    data=Factbook(countries=40),
    limit=100,
    model=Local(),  # SmolLM2-135M-Instruct
    index=Scann(),  # all-MiniLM-L6-v2
    reranker=QueryLikelihood(),  # for the baseline ``rerank`` and ``dpr_ais_rerank``
)
"""``pairs@quickstart``, whole; all other METHOD@DATA differ from it."""

FIXED_MIXES: dict[str, Any] = {
    "wo_ais_2q1p": {"candidates": FixedMix(from_query=2, from_pseudo=1), "select": Top(k=3)},
    "wo_ais_1q2p": {"candidates": FixedMix(from_query=1, from_pseudo=2), "select": Top(k=3)},
}
"""The ablations without AIS of PAIRS and DTR; they read three passages whatever the model."""


def _methods(full: Any) -> dict[str, Any]:
    """PAIRS and its ablations, reading as many passages."""
    k = full.select.k
    ungated = dataclasses.replace(DPR_AIS, select=full.select, reader=full.reader)
    changes: dict[str, Any] = {
        "rerank": {"select": Rerank(k=k, with_pseudo=True)},
        "dynamic": {"select": AIS(k=k, score="dynamic")},
        "cosine_sum": {"select": AIS(k=k, score="cosine_sum")},
        "wo_dpr_q": {"candidates": OnePath(n=10)},
        "wo_dpr_p": {"candidates": OnePath(n=10, by="pseudo")},
        **FIXED_MIXES,
    }
    return {
        "pairs": full,
        "pairs_exclude_num": dataclasses.replace(full, gate=AgreementGate(exclude_num=True)),
        **{
            f"dpr_ais_{name}": dataclasses.replace(ungated, **change)
            for name, change in changes.items()
        },
    }


_READER = Reader(prompts="pairs", passage_tokens=PASSAGE_TOKENS)

ALPHA_QUESTIONS = 5000
"""Training questions of the fit of alpha, at random (PAIRS eq 8)."""


def _geometry(variant: Variant) -> GoldGeometry:
    """Where gold passages lie, for the questions that are evaluated."""
    reader = _READER if variant.paper else SMALL
    return GoldGeometry(PAIRS.run(gold_geometry.Config(reader), variant, label=""))


def _alpha(variant: Variant) -> GoldGeometry:
    """The same for training questions, on which alpha is fitted."""
    job = _geometry(variant)
    run = dataclasses.replace(job.run, data=_training(variant))
    return dataclasses.replace(job, run=run)


def _training(variant: Variant) -> DataSettings:
    if not variant.paper:
        return SOURCES[variant.data].train
    source, _ = training_of(variant.data)
    return Draw(source, part="train", train=ALPHA_QUESTIONS, test=0, only_gold=True)


_TRAINABLE = [
    name
    for name in PAIRS.questions
    if (source := SOURCES[name.removeprefix("paper-")]).train is not None
    or (name.startswith("paper-") and source.paper is not None and source.paper.train)
]
_PAPER = _methods(pairs.Config(reader=_READER))
METHODS = {
    **{name: PAIRS.entry(small, _PAPER[name]) for name, small in _methods(RUN.method).items()},
    **entries(prompted(SINGLE_SEARCH, "pairs"), PAIRS),
    "gold_geometry": Entry(_geometry, PAIRS.questions),
    "alpha": Entry(_alpha, _TRAINABLE),
}


def get_config(variant: str = "pairs@quickstart") -> Job:
    """The run of METHOD@DATA."""
    return job_of(variant, METHODS, example="pairs@quickstart")
