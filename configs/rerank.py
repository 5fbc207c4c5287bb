"""Rerank: the ten best passages, of which a reranker keeps some.

    python -m experiments.run --config configs/rerank.py:factbook --workdir runs/rerank

Variants: see `configs.parts`.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, K, variant_run
from jaxrag.methods.retrieve_and_read import RERANK
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Rerank


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant,
        small=dataclasses.replace(
            RERANK, candidates=OnePath(n=10), select=Rerank(k=K), reader=SMALL
        ),
        paper=RERANK,
    )
