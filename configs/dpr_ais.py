"""DPR-AIS: dual paths and AIS for every question (PAIRS and DTR without their gates).

    python -m experiments.run --config configs/dpr_ais.py:factbook --workdir runs/dpr_ais

Variants: see `configs.parts`.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, K, variant_run
from jaxrag.methods.retrieve_and_read import DPR_AIS
from jaxrag.runs.run import Run
from jaxrag.steps.passage_selectors import AIS


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant, small=dataclasses.replace(DPR_AIS, select=AIS(k=K), reader=SMALL), paper=DPR_AIS
    )
