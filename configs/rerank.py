"""Rerank: the ten best passages, of which a reranker keeps some.

    python -m experiments.answer --config configs/rerank.py:factbook --workdir runs/rerank

Variants: see `configs.parts`.
"""

from __future__ import annotations

from configs.parts import SMALL, K, variant_run
from jaxrag.methods import rerank
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.selectors import Rerank
from jaxrag.run import Run


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant, small=rerank.Config(OnePath(n=10), Rerank(k=K), SMALL), paper=rerank.Config()
    )
