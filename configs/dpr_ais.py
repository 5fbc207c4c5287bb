"""DPR-AIS: dual paths and AIS for every question (PAIRS and DTR without their gates).

    python -m experiments.answer --config configs/dpr_ais.py:factbook --workdir runs/dpr_ais

Variants: see `configs.parts`.
"""

from __future__ import annotations

from configs.parts import SMALL, K, variant_run
from jaxrag.methods import dpr_ais
from jaxrag.methods.selectors import AIS
from jaxrag.run import Run


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant, small=dpr_ais.Config(select=AIS(k=K), reader=SMALL), paper=dpr_ais.Config()
    )
