"""DTR: retrieve where the direct answer is uncertain; dual paths and AIS.

    python -m experiments.run --config configs/dtr.py:factbook --workdir runs/dtr

Variants: see `configs.parts`.
"""

from __future__ import annotations

from configs.parts import SMALL, THRESHOLD, K, variant_run
from jaxrag.methods import dtr
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.runs.run import Run
from jaxrag.steps.passage_selectors import AIS


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant,
        small=dtr.Config(UncertaintyGate(THRESHOLD), select=AIS(k=K), reader=SMALL),
        paper=dtr.Config(),
    )
