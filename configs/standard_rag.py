"""Standard RAG: the best passages for the question, for every question.

    python -m experiments.run --config configs/standard_rag.py:factbook --workdir runs/rag

Variants: see `configs.parts`.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, K, variant_run
from jaxrag.methods.retrieve_and_read import STANDARD_RAG
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant,
        small=dataclasses.replace(
            STANDARD_RAG, candidates=OnePath(n=K), select=Top(k=K), reader=SMALL
        ),
        paper=STANDARD_RAG,
    )
