"""DTR: retrieve where the direct answer is uncertain; dual paths and AIS.

    python -m experiments.answer --config configs/dtr.py:factbook --workdir runs/dtr

Variants: see `configs.parts`.
"""

from __future__ import annotations

from configs.parts import SMALL, THRESHOLD, K, variant_run
from jaxrag.methods import dtr
from jaxrag.methods.gates import UncertaintyGate
from jaxrag.methods.selectors import AIS
from jaxrag.run import Run


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant,
        small=dtr.Config(UncertaintyGate(THRESHOLD), select=AIS(k=K), reader=SMALL),
        paper=dtr.Config(),
    )
