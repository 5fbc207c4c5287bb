"""R3: reads what SiDR finds, a retriever that is trained for the language model that reads.

    python -m experiments.run --config configs/r3.py:factbook --workdir runs/r3 \
        --config.index.checkpoint=DIRECTORY

Variants: see `configs.parts`. DIRECTORY is a trained SiDR. The small variants do without: their
retriever is then all-MiniLM-L6-v2 as training begins with it. The variants ``paper-*`` ask
Llama-3-8B, the base model, and need one.

Ten passages instead of one: ``--config.method.candidates.n=10 --config.method.select.k=10``. Other
searches of SiDR: ``--config.index.search=beta``, "alpha" or "parametric".
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, K, variant_run
from configs.train_sidr import SMALL as START
from jaxrag.methods.r3 import r3
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top


def get_config(variant: str = "factbook") -> Run:
    """The run of a variant."""
    run = variant_run(
        variant,
        small=r3.Config(OnePath(n=K), Top(k=K), SMALL),
        paper=r3.Config(),
        paper_model="hub:meta-llama/Meta-Llama-3-8B",
    )
    return dataclasses.replace(run, index=Sidr("") if variant.startswith("paper-") else START)
