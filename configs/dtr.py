"""DTR: retrieve where the direct answer is uncertain; dual paths and AIS: METHOD@DATA.

Source: docs/methods, "DTR".

    jaxrag run --config configs/dtr.py:dtr@quickstart --workdir runs/dtr

- hardware: 2 CPU cores (AVX2), 2026-11-27
- minutes: 6 for four methods and the installation (``make quickstart``); not measured alone
- score: EM 30.0 [21.0, 39.0], F1 36.4 [27.5, 45.3] on 100 questions, with SmolLM2 (README)

Methods:

- ``dtr``; its ablations (Table 3 of the paper): ``dtr_wo_ugt`` always retrieves, ``dtr_wo_dpr``
  searches by the question alone, ``dtr_wo_ais_2q1p`` and ``dtr_wo_ais_1q2p`` read two passages of
  one search and one of the other.
- ``dtr_released``: what the authors' code does instead (docs/methods, "DTR: paper and code"):
  the sum of cosines as score, a penalty of repetition of 1.1, up to 1,024 new tokens, u without the
  last token, retrieval at u equal to the threshold, and the index of bge-base-en-v1.5 without
  titles and prefixes; ``dtr_released_e5`` with the index of e5-base-v2.
- the baselines of the table, as in `configs.baselines`: ``no_retrieval``, ``standard_rag``,
  ``hyde``, ``q2d``, ``cot``, ``llm_judge``; and ``rerank`` and ``dpr_ais`` of PAIRS, all with DTR's
  prompts. ``pairs`` has its own.

Data: `configs.data`; ``jaxrag list data`` prints the names, ``paper-NAME`` are the papers'.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxrag.configs import pairs
from jaxrag.configs.baselines import SINGLE_SEARCH, entries, prompted
from jaxrag.configs.parts import BGE, PAIRS, PASSAGE_TOKENS, SMALL, K, job_of
from jaxrag.data.factbook import Factbook
from jaxrag.engines.local.engine import Local
from jaxrag.methods import dtr
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import bge, e5
from jaxrag.retrieval.dense.scann.index import Scann
from jaxrag.retrieval.settings import QueryLikelihood
from jaxrag.runs.job import Job
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import DualPath, OnePath
from jaxrag.steps.gates import Always
from jaxrag.steps.passage_selectors import AIS, Top
from jaxrag.steps.reader import Reader

THRESHOLD = 0.4
"""For SmolLM2: accepts the surest eighth of the questions of quickstart_train without retrieval."""

RUN = Run(
    method=dtr.Config(
        gate=UncertaintyGate(threshold=THRESHOLD),  # nats
        candidates=DualPath(n=5),  # by the question, and by the pseudo-context
        select=AIS(k=K),
        reader=SMALL,
    ),
    data=Factbook(countries=40),
    limit=100,
    model=Local(),  # SmolLM2-135M-Instruct
    index=Scann(),  # all-MiniLM-L6-v2
    reranker=QueryLikelihood(),  # for the baseline ``rerank``
)
"""``dtr@quickstart``, whole; all other METHOD@DATA differ from it."""


def _methods(full: Any) -> dict[str, dtr.Config]:
    """DTR and its ablations, reading as many passages."""
    k = full.select.k
    changes = {
        "wo_ugt": {"gate": Always()},
        "wo_dpr": {"candidates": OnePath(n=k), "select": Top(k=k)},
        **pairs.FIXED_MIXES,
    }
    ablations = {f"dtr_{name}": dataclasses.replace(full, **c) for name, c in changes.items()}
    return {"dtr": full, **ablations}


def released(method: Any, **reader: Any) -> dtr.Config:
    """A method's settings as in the authors' code."""
    changes: dict[str, Any] = {
        "reader": dataclasses.replace(
            method.reader, repetition_penalty=1.1, fidelity="released", **reader
        )
    }
    if isinstance(getattr(method, "select", None), AIS):
        changes["select"] = AIS(k=method.select.k, score="cosine_sum")
    return dataclasses.replace(method, **changes)


def _bare(encoder: BiEncoder) -> BiEncoder:
    """An encoder without titles and prefixes."""
    return dataclasses.replace(encoder, embed_title=False, query_prefix="", passage_prefix="")


_FULL = dtr.Config(reader=Reader(prompts="dtr", passage_tokens=PASSAGE_TOKENS))
_PAPER = _methods(_FULL)
_RELEASED = released(RUN.method), released(_FULL, answer_tokens=1024)
_BGE_BASE = bge("hub:BAAI/bge-base-en-v1.5")
_SMALL_INDEX = {"index": Scann(_bare(BiEncoder()))}
METHODS = {
    **{name: PAIRS.entry(small, _PAPER[name]) for name, small in _methods(RUN.method).items()},
    "dtr_released": PAIRS.entry(*_RELEASED, _SMALL_INDEX, {"index": Exact(_bare(_BGE_BASE))}),
    "dtr_released_e5": PAIRS.entry(*_RELEASED, _SMALL_INDEX, {"index": Exact(_bare(e5()))}),
    "pairs": pairs.METHODS["pairs"],
    **entries(prompted(SINGLE_SEARCH, "dtr"), PAIRS),
}


def as_released(job: Any) -> Any:
    """A job of the paper's tables with the settings of the authors' code, index included."""
    if not isinstance(job, Run):
        return dataclasses.replace(job, run=as_released(job.run))
    index: Any = job.index
    if index is not None:
        encoder = _BGE_BASE if index.encoder == BGE else index.encoder
        index = dataclasses.replace(index, encoder=_bare(encoder))
    return dataclasses.replace(job, method=released(job.method, answer_tokens=1024), index=index)


def get_config(variant: str = "dtr@quickstart") -> Job:
    """The run of METHOD@DATA."""
    return job_of(variant, METHODS, example="dtr@quickstart")
