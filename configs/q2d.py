"""Q2D: copies of the question joined with a passage that the model writes are the query.

    python -m experiments.answer --config configs/q2d.py:factbook --workdir runs/q2d

Variants: see `configs.parts`.
"""

from __future__ import annotations

from configs.parts import SMALL, K, variant_run
from jaxrag.methods import q2d
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.selectors import Top
from jaxrag.run import Run


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant, small=q2d.Config(OnePath(n=K, by="expanded"), Top(k=K), SMALL), paper=q2d.Config()
    )
