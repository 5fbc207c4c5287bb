"""Standard RAG over one retriever or another: BM25, and the dense baselines of R3 (Table 1).

    python -m experiments.run --config configs/retrievers.py:bm25@factbook --workdir runs/bm25

A variant is RETRIEVER@VARIANT, the second part as in `configs.parts`:

- ``bm25``: needs ``pip install 'jaxrag[bm25]'``.
- ``contriever``, ``contriever_ms``, ``e5``, ``dpr``: from the hub, see
  `jaxrag.retrieval.dense.published_encoders` (some have weights there as pickles only, which are
  not read); not run by us yet.

DPR by distance is ``--config.index.metric=l2``; ten passages, as in half of R3's columns, are
``--config.method.candidates.n=10 --config.method.select.k=10``.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, K, variant_run
from jaxrag.methods.retrieve_and_read import STANDARD_RAG
from jaxrag.retrieval.bm25.settings import Bm25
from jaxrag.retrieval.dense.published_encoders import contriever, dpr, e5
from jaxrag.retrieval.dense.settings import Exact
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.types import InputError

RETRIEVERS = {
    "bm25": Bm25(),
    "contriever": Exact(contriever("hub:facebook/contriever")),
    "contriever_ms": Exact(contriever()),
    "e5": Exact(e5()),
    "dpr": Exact(dpr()),
}


def get_config(variant: str = "bm25@factbook") -> Run:
    """The run of a retriever."""
    name, _, where = variant.partition("@")
    if name not in RETRIEVERS:
        known = ", ".join(RETRIEVERS)
        raise InputError(f"no retriever {name!r}; there are {known}. Give RETRIEVER@VARIANT.")
    run = variant_run(
        where or "factbook",
        small=dataclasses.replace(
            STANDARD_RAG, candidates=OnePath(n=K), select=Top(k=K), reader=SMALL
        ),
        paper=STANDARD_RAG,
    )
    return dataclasses.replace(run, index=RETRIEVERS[name], label=name)
