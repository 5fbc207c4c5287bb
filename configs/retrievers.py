"""Standard RAG over one retriever or another: BM25, and the dense baselines of R3 (Table 1).

    python -m experiments.answer --config configs/retrievers.py:bm25@factbook --workdir runs/bm25

A variant is RETRIEVER@VARIANT, the second part as in `configs.parts`:

- ``bm25``: needs ``pip install 'jaxrag[bm25]'``.
- ``contriever``, ``contriever_ms``, ``e5``, ``dpr``: from the hub, see `jaxrag.settings.baselines`
  (some have weights there as pickles only, which are not read); not run by us yet.

DPR by distance is ``--config.index.metric=l2``; ten passages, as in half of R3's columns, are
``--config.method.candidates.n=10 --config.method.select.k=10``.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SMALL, K, variant_run
from jaxrag.methods import standard_rag
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.selectors import Top
from jaxrag.run import Run
from jaxrag.settings import Bm25, Exact, contriever, dpr, e5
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
        small=standard_rag.Config(OnePath(n=K), Top(k=K), SMALL),
        paper=standard_rag.Config(),
    )
    return dataclasses.replace(run, index=RETRIEVERS[name], label=name)
