"""Self-RAG (a row of ERRR's and ARS-RAG's tables): MODE@DATA.

    python -m experiments.run --config configs/self_rag.py:prompted@factbook \
        --workdir runs/self_rag

Modes:

- ``prompted``: an emulation, named so in tables: SmolLM2 is asked by prompts for the judgements
  that a Self-RAG model makes by its reflection tokens.
- ``checkpoint``: Self-RAG itself, which needs its model,
  ``--config.model.checkpoint=DIRECTORY`` of selfrag/selfrag_llama2_7b.

Both answer shortly, from the best of 5 passages, each read alone. Long answers:
``--config.method.form=long``. Always or never retrieving: ``--config.method.retrieve=always``.

Data: ``tiny``, ``factbook``, ``popqa``, ``ambigqa``, ``hotpotqa``, the questions of
`configs.errr`. ``checkpoint@paper-popqa`` and so on: the published checkpoint from the hub over
Contriever's embeddings and as many questions as the paper has or there are; ``prompted@paper-...``
asks Qwen2.5-7B-Instruct instead. For a GPU or TPU; not run by us.
"""

from __future__ import annotations

import dataclasses

from configs.errr import DATA, PAPER
from configs.parts import SMALL, parts_of
from jaxrag.engines.local.engine import Local
from jaxrag.methods.self_rag import self_rag
from jaxrag.retrieval.dense.published_encoders import contriever
from jaxrag.retrieval.dense.settings import Exact, Scann
from jaxrag.runs.run import Run
from jaxrag.steps.asking import Reader
from jaxrag.types import InputError

CHECKPOINT = "hub:selfrag/selfrag_llama2_7b"
METHODS = {
    "prompted": (
        self_rag.Config(
            mode="prompted",
            reader=dataclasses.replace(SMALL, prompts="self_rag_small"),
            segment_tokens=32,
            depth=4,
            closed_tokens=4,
        ),
        self_rag.Config(mode="prompted", reader=Reader(prompts="self_rag"), closed_tokens=8),
    ),
    "checkpoint": (self_rag.Config(), self_rag.Config()),
}
"""Settings for the small data and models, and for the paper's."""


def get_config(variant: str = "prompted@factbook") -> Run:
    """The run of a mode on some data.

    Raises:
      InputError: no such mode, or no such data.
    """
    mode, data, paper = parts_of(variant, DATA)
    if mode not in METHODS:
        raise InputError(f"no mode {mode!r} in {variant!r}; there are {', '.join(METHODS)}.")
    drawn = dataclasses.replace((PAPER if paper else DATA)[data], part="test")
    model, index = Local(), Exact()
    if mode == "checkpoint":
        model = Local(CHECKPOINT if paper else "")
    elif paper:
        model = Local("hub:Qwen/Qwen2.5-7B-Instruct")
    if paper:
        index = Scann(contriever())
    label = "self_rag (prompted)" if mode == "prompted" else "self_rag"
    return Run(METHODS[mode][paper], drawn, model, index, label=label)
