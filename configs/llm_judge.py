"""LLM Judge: the model says whether it needs to look things up.

    python -m experiments.answer --config configs/llm_judge.py:factbook --workdir runs/llm_judge

Variants: see `configs.parts`.
"""

from __future__ import annotations

from configs.parts import SMALL, K, variant_run
from jaxrag.methods import llm_judge
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.selectors import Top
from jaxrag.run import Run


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant,
        small=llm_judge.Config(candidates=OnePath(n=K), select=Top(k=K), reader=SMALL),
        paper=llm_judge.Config(),
    )
