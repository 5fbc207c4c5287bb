"""Q2D: copies of the question joined with a passage that the model writes are the query.

    python -m experiments.run --config configs/q2d.py:factbook --workdir runs/q2d

Variants: see `configs.parts`.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, K, variant_run
from jaxrag.methods.retrieve_and_read import Q2D
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant,
        small=dataclasses.replace(
            Q2D, candidates=OnePath(n=K, by="expanded"), select=Top(k=K), reader=SMALL
        ),
        paper=Q2D,
    )
