"""DRAGIN and SeaKR, which look into the model: METHOD@DATA.

    python -m experiments.run --config configs/inspecting.py:dragin@factbook \\
        --workdir runs/dragin

Methods:

- ``dragin``: retrieves at words that the model is unsure of and that its text goes on to depend on;
  what it attends to there is the query.
- ``seakr``: retrieves for steps whose samples lie apart in the model's hidden states, and chooses
  passages and answers by the same measure.

Data: ``tiny``, ``factbook``, ``popqa``, ``ambigqa``, ``hotpotqa``, as in `configs.errr`: the same
200 test questions, with SmolLM2 and MiniLM, one short passage read at a time. ``paper-popqa`` and
so on: Llama-2-7b-chat from the hub and BM25, the released settings for HotpotQA; not run by us.

Only the local engine shows its inside: there is no ``+vllm`` and no ``+server`` here. DRAGIN's
small `THETA` and SeaKR's small `THRESHOLD` were chosen by the scores of 20 training questions of
factbook, which a run with ``--config.data.part=train`` and ``--config.method.theta=1e9``, or
``threshold=1e9``, writes into its traces.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from configs.errr import DATA, PAPER
from configs.parts import K, parts_of
from jaxrag.engines.local.engine import Local
from jaxrag.methods.inspecting import dragin, seakr
from jaxrag.retrieval.bm25.settings import Bm25
from jaxrag.retrieval.dense.settings import Exact
from jaxrag.runs.run import Run
from jaxrag.steps.asking import Reader
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.types import InputError

READER = Reader(prompts="inspecting_small", answer_tokens=16, passage_tokens=48)

THETA = 2.5
"""DRAGIN's for SmolLM2: 16 of 20 training questions have a score above it in their first text."""

THRESHOLD = 7.2
"""SeaKR's for SmolLM2: 16 of 20 training questions have a first step above it."""

SMALL: dict[str, Any] = {
    "dragin": dragin.Config(
        theta=THETA,
        query_words=12,
        candidates=OnePath(n=K),
        select=Top(k=K),
        reader=READER,
        tokens=64,
        max_retrievals=3,
    ),
    "seakr": seakr.Config(
        threshold=THRESHOLD, samples=3, k=2, max_steps=3, max_passages=1, reader=READER, tokens=32
    ),
}
LARGE: dict[str, Any] = {"dragin": dragin.Config(), "seakr": seakr.Config()}


def get_config(variant: str = "dragin@factbook") -> Run:
    """The run of a method on some data.

    Raises:
      InputError: no such method or data, or another engine is asked for.
    """
    if "+" in variant:
        raise InputError(
            f"{variant!r} asks for another engine, but DRAGIN and SeaKR look into the model: the "
            "local engine alone gives attentions and hidden states, so leave out what follows '+'."
        )
    name, data, paper = parts_of(variant, DATA)
    if name not in SMALL:
        raise InputError(f"no method {name!r}; there are {', '.join(SMALL)}. Give METHOD@DATA.")
    drawn = dataclasses.replace((PAPER if paper else DATA)[data], part="test")
    if paper:
        return Run(LARGE[name], drawn, Local("hub:meta-llama/Llama-2-7b-chat-hf"), Bm25())
    return Run(SMALL[name], drawn, Local(), Exact())
