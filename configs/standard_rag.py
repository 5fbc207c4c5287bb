"""Standard RAG: the best passages for the question, for every question.

    python -m experiments.answer --config configs/standard_rag.py:factbook --workdir runs/rag

Variants: see `configs.parts`.
"""

from __future__ import annotations

from configs.parts import SMALL, K, variant_run
from jaxrag.methods import standard_rag
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.selectors import Top
from jaxrag.run import Run


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant,
        small=standard_rag.Config(OnePath(n=K), Top(k=K), SMALL),
        paper=standard_rag.Config(),
    )
