"""LLM Judge: the model says whether it needs to look things up.

    python -m experiments.run --config configs/llm_judge.py:factbook --workdir runs/llm_judge

Variants: see `configs.parts`.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, K, variant_run
from jaxrag.methods.retrieve_and_read import LLM_JUDGE
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant,
        small=dataclasses.replace(
            LLM_JUDGE, candidates=OnePath(n=K), select=Top(k=K), reader=SMALL
        ),
        paper=LLM_JUDGE,
    )
