"""Methods that retrieve in turns, as often as a question needs: METHOD@DATA.

    python -m experiments.run --config configs/iterative.py:react@factbook --workdir runs/react

Methods:

- ``react``: ReAct, thoughts, actions and observations.
- ``ircot``: IRCoT, each sentence of reasoning is searched for.
- ``adaptive_rag``: Adaptive-RAG, no, one or several searches as a trained classifier says:
  ``--config.method.classifier.checkpoint=DIRECTORY``, a T5, or with ``+decoder``, as in
  ``adaptive_rag+decoder@popqa``, a model of our own decoder.
- ``none``, ``single``, ``multi``: every question in one of these ways, which needs no classifier.

Data: ``tiny``, for tests; ``factbook``, ``popqa``, ``ambigqa``, ``hotpotqa``: 200 test questions,
those of `configs.errr`. SmolLM2, MiniLM and short texts: one passage a search, few steps.
``paper-popqa`` and so on: the papers' limits, Qwen2.5-7B-Instruct and bge-large-en-v1.5 from the
hub; not run by us yet.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from configs.ars import BY, CLOSED
from configs.errr import DATA, PAPER
from configs.parts import SMALL, K, parts_of
from jaxrag.engines.local.engine import Local
from jaxrag.methods.iterative import adaptive_rag, ircot, react
from jaxrag.methods.iterative.ircot import Interleaving
from jaxrag.retrieval.dense.settings import BiEncoder, Exact, Scann
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.types import InputError

READER = dataclasses.replace(SMALL, prompts="iterative_small")
LOOP = Interleaving(k=K, max_passages=3, max_steps=3, sentence_tokens=40)


def _adaptive(complexity: adaptive_rag.Complexity) -> tuple[adaptive_rag.Config, ...]:
    small = adaptive_rag.Config(
        complexity=complexity,
        candidates=OnePath(n=K),
        select=Top(k=K),
        loop=LOOP,
        answer_from="passages",
        reader=READER,
        closed_tokens=CLOSED,
        by=BY,
    )
    return small, adaptive_rag.Config(complexity=complexity)


METHODS: dict[str, tuple[Any, ...]] = {
    "react": (
        react.Config(
            max_steps=4,
            step_tokens=64,
            pages=react.Pages(n=5, show=K),
            on_limit="answer",
            reader=READER,
            closed_tokens=CLOSED,
            by=BY,
        ),
        react.Config(),
    ),
    "ircot": (
        ircot.Config(LOOP, reader=READER, closed_tokens=CLOSED, by=BY),
        ircot.Config(),
    ),
    "adaptive_rag": _adaptive("trained"),
    "none": _adaptive("none"),
    "single": _adaptive("single"),
    "multi": _adaptive("multi"),
}
"""Settings for a small model, and for one that follows instructions."""


def run_on(method: Any, data: str, *, paper: bool, part: str = "test") -> Run:
    """A run of a method on drawn questions."""
    drawn = dataclasses.replace((PAPER if paper else DATA)[data], part=part)
    if not paper:
        return Run(method=method, data=drawn, model=Local(), index=Exact())
    bge = BiEncoder("hub:BAAI/bge-large-en-v1.5", pooling="cls", max_length=512)
    return Run(method, drawn, Local("hub:Qwen/Qwen2.5-7B-Instruct"), Scann(bge))


def get_config(variant: str = "react@factbook") -> Run:
    """The run of a method on some data.

    Raises:
      InputError: no such method, or no such data.
    """
    label, data, paper = parts_of(variant, DATA)
    name = label.removesuffix("+decoder")
    if name not in METHODS or (name != label and name != "adaptive_rag"):
        known = ", ".join([*METHODS, "adaptive_rag+decoder"])
        raise InputError(f"no method {label!r}; there are {known}. Give METHOD@DATA.")
    method = METHODS[name][paper]
    if name != label:
        method = dataclasses.replace(method, classifier=Local(""))
    return dataclasses.replace(run_on(method, data, paper=paper), label=label)
