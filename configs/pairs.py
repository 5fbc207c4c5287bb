"""PAIRS: retrieve where two answers of the model disagree; dual paths and AIS.

    python -m experiments.run --config configs/pairs.py:factbook --workdir runs/pairs

Variants: see `configs.parts`.
"""

from __future__ import annotations

from configs.parts import SMALL, K, variant_run
from jaxrag.methods import pairs
from jaxrag.runs.run import Run
from jaxrag.steps.passage_selectors import AIS


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant, small=pairs.Config(select=AIS(k=K), reader=SMALL), paper=pairs.Config()
    )
