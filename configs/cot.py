"""CoT expansion: copies of the question joined with the model's reasoning are the query.

    python -m experiments.answer --config configs/cot.py:factbook --workdir runs/cot

Variants: see `configs.parts`.
"""

from __future__ import annotations

from configs.parts import SMALL, K, variant_run
from jaxrag.methods import cot
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.selectors import Top
from jaxrag.run import Run


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant, small=cot.Config(OnePath(n=K, by="expanded"), Top(k=K), SMALL), paper=cot.Config()
    )
