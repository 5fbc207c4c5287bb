"""Compares retrievers by the relevant passages that they find, or by the answers: METHOD@DATA.

    jaxrag run --config configs/retrieval.py:compare@hotpotqa --workdir runs/found

Measured: recall@k, MRR@10 and nDCG@10 where relevant passages are known, graded or not, and
answer@k, whether a gold answer occurs in the first k passages, where there are answers. With 95 %
intervals, and paired differences to the first retriever. TREC's Deep Learning tracks count grades
from 2 as relevant: ``--config.relevant_from=2``.

METHOD: one retriever, ``bm25`` (``pip install 'jaxrag[bm25]'``), ``minilm``, ``bge``,
``contriever``, ``contriever_ms``, ``e5`` or ``dpr``; or several, ``compare``: BM25 and
all-MiniLM-L6-v2, or for ``paper-`` BM25, Contriever (MS MARCO), E5 and bge-large. Any others:
``--config.indexes=Bm25,Exact,Sidr --config.indexes.2.checkpoint=DIRECTORY``.

DATA: ``tiny``, ``factbook``, ``hotpotqa``, ``squad``, ``nq`` of `configs.data`; and ``paper-NAME``
for every published set: ``paper-nq``, ``paper-msmarco`` and so on, or
``--config.data=msmarco --config.data.0.split=dl19``. Files of your own in BEIR's or TREC's form:
``--config.data=Published --config.data.0.path=DIRECTORY``.
"""

from __future__ import annotations

from jaxrag.configs.baselines import RETRIEVERS
from jaxrag.configs.data import SOURCES
from jaxrag.configs.parts import BGE, Entry, Variant, job_of
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.dataset import DataSettings
from jaxrag.data.sets import SETS
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import contriever, e5
from jaxrag.retrieval.settings import IndexSettings
from jaxrag.runs.job import Job
from jaxrag.runs.retriever_comparison import RetrieverComparison

INDEXES: dict[str, IndexSettings] = {
    "minilm": Exact(),
    "bge": Exact(BGE),
    **{name: baseline.small_run["index"] for name, baseline in RETRIEVERS.items()},
}
SMALL_COMPARISON = (Bm25(), Exact())
PAPER_COMPARISON = (Bm25(), Exact(contriever()), Exact(e5()), Exact(BGE))

QUESTIONS: dict[str, DataSettings] = {
    **{
        name: source.test
        for name in ("tiny", "factbook", "hotpotqa", "squad", "nq")
        if (source := SOURCES[name]).test is not None
    },
    **{f"paper-{name}": Benchmark(name) for name in SETS},
}


def _compare(variant: Variant) -> RetrieverComparison:
    indexes = PAPER_COMPARISON if variant.paper else SMALL_COMPARISON
    if variant.method != "compare":
        indexes = (INDEXES[variant.method],)
    limit = 12 if variant.name == "tiny" else 0
    return RetrieverComparison(indexes, (QUESTIONS[variant.name],), limit=limit)


METHODS = {name: Entry(_compare, QUESTIONS) for name in ("compare", *INDEXES)}


def get_config(variant: str = "compare@factbook") -> Job:
    """The comparison of METHOD@DATA."""
    return job_of(variant, METHODS, example="compare@factbook")
