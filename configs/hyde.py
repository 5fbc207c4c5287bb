"""HyDE: a passage that the model writes is the search query.

    python -m experiments.run --config configs/hyde.py:factbook --workdir runs/hyde

Variants: see `configs.parts`.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, K, variant_run
from jaxrag.methods.retrieve_and_read import HYDE
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    return variant_run(
        variant,
        small=dataclasses.replace(
            HYDE, candidates=OnePath(n=K, by="pseudo"), select=Top(k=K), reader=SMALL
        ),
        paper=HYDE,
    )
