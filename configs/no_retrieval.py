"""No Retrieval: the model's own knowledge.

    python -m experiments.run --config configs/no_retrieval.py:factbook --workdir runs/none

Variants: see `configs.parts`.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, variant_run
from jaxrag.methods.retrieve_and_read import NO_RETRIEVAL
from jaxrag.runs.run import Run


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    run = variant_run(
        variant, small=dataclasses.replace(NO_RETRIEVAL, reader=SMALL), paper=NO_RETRIEVAL
    )
    return dataclasses.replace(run, index=None, reranker=None)
