"""The baselines of ARS-RAG's Table 1 that need no checkpoint of their own: BASELINE@DATA.

Source: docs/methods.md, "ARS-RAG: baselines".

    python -m experiments.run --config configs/ars_baselines.py:flare@factbook \
        --workdir runs/flare

A variant is BASELINE@DATA, the second part as in `configs.ars`: the same test questions.

- ``few_shot``: the row LLM, demonstrations without retrieval.
- ``chain_of_thought``: the row COT, reasoning without retrieval.
- ``flare``: FLARE, retrieval where the next sentence is unsure.
- ``fairrag``: FairRAG's stochastic retriever.
- ``rankrag``: RankRAG's selection by the model that answers, prompted instead of tuned.
- ``cor``: CoR's ranking of document ids, prompted instead of tuned.

The row SELF-RAG is `configs.self_rag`; RaFe needs a trained checkpoint. The settings of the small
variants are not tuned; they fit one short passage, as the others' do.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from configs.ars import BY, CLOSED, DATA, run_on
from configs.parts import SMALL, K, parts_of
from jaxrag.methods.baselines import chain_of_thought, cor, fairrag, few_shot, rankrag
from jaxrag.methods.iterative import flare
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.types import InputError

READER = dataclasses.replace(SMALL, prompts="baselines_small")

BASELINES: dict[str, tuple[Any, Any]] = {
    "few_shot": (few_shot.Config(READER, CLOSED, BY), few_shot.Config()),
    "chain_of_thought": (
        chain_of_thought.Config(READER, reasoning_tokens=64),
        chain_of_thought.Config(),
    ),
    "flare": (
        flare.Config(
            candidates=OnePath(n=K),
            select=Top(k=K),
            reader=READER,
            sentence_tokens=32,
            max_sentences=4,
        ),
        flare.Config(),
    ),
    "fairrag": (
        fairrag.Config(OnePath(n=5), k=K, reader=READER, closed_tokens=CLOSED, by=BY),
        fairrag.Config(),
    ),
    "rankrag": (
        rankrag.Config(OnePath(n=5), k=K, reader=READER, closed_tokens=CLOSED, by=BY),
        rankrag.Config(),
    ),
    "cor": (
        cor.Config(
            OnePath(n=3), k=K, ranking_tokens=16, reader=READER, closed_tokens=CLOSED, by=BY
        ),
        cor.Config(),
    ),
}
"""Settings for a small model, and for one that follows instructions."""

_WITHOUT_INDEX = ("few_shot", "chain_of_thought")


def get_config(variant: str = "flare@factbook") -> Run:
    """The run of a baseline on some data.

    Raises:
      InputError: no such baseline, or no such data.
    """
    name, data, paper = parts_of(variant, DATA)
    if name not in BASELINES:
        known = ", ".join(BASELINES)
        raise InputError(f"no baseline {name!r}; there are {known}. Give BASELINE@DATA.")
    run = run_on(BASELINES[name][paper], data, paper=paper)
    return dataclasses.replace(run, index=None) if name in _WITHOUT_INDEX else run
