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
from jaxrag.settings.seq2seq import Seq2Seq
from jaxrag.settings.sidr import Sidr
from jaxrag.settings.web import Web
from jaxrag.settings.wiki_dpr import WikiDpr

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
    "Seq2Seq",
    "Server",
    "Sidr",
    "Vllm",
    "Web",
    "WikiDpr",
    "contriever",
    "dpr",
    "e5",
    "matrix_directory",
]
