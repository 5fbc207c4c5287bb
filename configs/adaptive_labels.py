"""What Adaptive-RAG's classifier is trained on: every strategy for every training question.

    python -m experiments.run --config configs/adaptive_labels.py:hotpotqa \
        --workdir runs/labels/hotpotqa

The data of `configs.iterative`, their training questions; pairs.jsonl is what is trained on. A
classifier needs questions of one hop and of more: ``cat`` makes one file of several data sets'.
Where no strategy answers, questions of ``hotpotqa`` are labelled "multi", all others "single"
(``--config.run.method.bias=drop`` leaves them out). ``paper-hotpotqa`` and so on are with the
papers' models, not run by us.
"""

from __future__ import annotations

import dataclasses

from configs.errr import DATA
from configs.iterative import METHODS, run_on
from configs.parts import parts_of
from jaxrag.methods.iterative import adaptive_labels
from jaxrag.methods.iterative.complexity_pairs import MakeComplexityPairs

_SHARED = {
    field.name for field in dataclasses.fields(adaptive_labels.Config)
} - {"right", "bias", "held_out"}  # fmt: skip


def get_config(variant: str = "hotpotqa") -> MakeComplexityPairs:
    """The job of a data set; "paper-" before its name takes the papers' models."""
    _, data, paper = parts_of(f"@{variant}", DATA)
    asked = METHODS["adaptive_rag"][paper]
    method = adaptive_labels.Config(
        bias="multi" if data == "hotpotqa" else "single",
        **{name: getattr(asked, name) for name in sorted(_SHARED)},
    )
    return MakeComplexityPairs(run_on(method, data, paper=paper, part="train"))
