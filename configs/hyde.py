"""HyDE: a passage that the model writes is the search query.

    python -m experiments.answer --config configs/hyde.py:factbook --workdir runs/hyde

Variants: see `configs.parts`.
"""

from __future__ import annotations

from configs.parts import SMALL, K, variant_run
from jaxrag.methods import hyde
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.selectors import Top
from jaxrag.run import Run


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant, small=hyde.Config(OnePath(n=K, by="pseudo"), Top(k=K), SMALL), paper=hyde.Config()
    )
