"""The parts that a `Run` is put together from: data, language models, indexes, rerankers."""

from jaxrag.settings.ars import CountSelector, RewriteRanker
from jaxrag.settings.baselines import contriever, dpr, e5
from jaxrag.settings.data import Factbook, Folder
from jaxrag.settings.draws import Draw
from jaxrag.settings.indexes import (
    BiEncoder,
    CrossEncoder,
    Exact,
    QueryLikelihood,
    Scann,
    matrix_directory,
)
from jaxrag.settings.lexical import Bm25
from jaxrag.settings.models import Local, Server, Vllm
from jaxrag.settings.sidr import Sidr

__all__ = [
    "BiEncoder",
    "Bm25",
    "CountSelector",
    "CrossEncoder",
    "Draw",
    "Exact",
    "Factbook",
    "Folder",
    "Local",
    "QueryLikelihood",
    "RewriteRanker",
    "Scann",
    "Server",
    "Sidr",
    "Vllm",
    "contriever",
    "dpr",
    "e5",
    "matrix_directory",
]
