"""Retrievers side by side by the gold passages that they find.

    python -m experiments.run --config configs/recall.py:wiki --workdir runs/recall

Variants:

- ``tiny``: BM25 and the beginning of SiDR on 3 countries; for tests.
- ``wiki``: BM25, all-MiniLM-L6-v2 and the beginning of SiDR on hotpotqa and squad, folders below
  ``$JAXRAG_DATA``, over the folder ``wiki_pool``.
- ``wiki@DIRECTORY``: the same with the four searches of the SiDR trained there.
"""

from __future__ import annotations

import dataclasses

from configs.parts import SETS
from configs.train_sidr import SMALL
from jaxrag.data.factbook.build import Factbook
from jaxrag.retrieval.bm25.settings import Bm25
from jaxrag.retrieval.dense.settings import Exact
from jaxrag.runs.recall import Recall
from jaxrag.types import InputError


def get_config(variant: str = "wiki") -> Recall:
    """The job of a variant.

    Raises:
      InputError: no such variant.
    """
    name, _, trained = variant.partition("@")
    beginning = tuple(dataclasses.replace(SMALL, search=search) for search in ("late", "beta"))
    if name == "tiny":
        return Recall((Bm25(), *beginning), (Factbook(countries=3),), limit=12)
    if name != "wiki":
        raise InputError(f"no variant {variant!r}; there are tiny, wiki and wiki@DIRECTORY.")
    after = tuple(
        dataclasses.replace(SMALL, checkpoint=trained, search=search)
        for search in ("late", "beta", "alpha", "parametric")
    )
    indexes = (Bm25(), Exact(), *beginning, *(after if trained else ()))
    return Recall(indexes, (SETS["hotpotqa"], SETS["squad"]), limit=500)
