"""No Retrieval: the model's own knowledge.

    python -m experiments.answer --config configs/no_retrieval.py:factbook --workdir runs/none

Variants: see `configs.parts`.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, variant_run
from jaxrag.methods import no_retrieval
from jaxrag.run import Run


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    run = variant_run(variant, small=no_retrieval.Config(reader=SMALL), paper=no_retrieval.Config())
    return dataclasses.replace(run, index=None, reranker=None)
