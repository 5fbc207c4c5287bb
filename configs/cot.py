"""CoT expansion: copies of the question joined with the model's reasoning are the query.

    python -m experiments.run --config configs/cot.py:factbook --workdir runs/cot

Variants: see `configs.parts`.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, K, variant_run
from jaxrag.methods.retrieve_and_read import COT
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant,
        small=dataclasses.replace(
            COT, candidates=OnePath(n=K, by="expanded"), select=Top(k=K), reader=SMALL
        ),
        paper=COT,
    )
