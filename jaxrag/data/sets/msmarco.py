"""MS MARCO passage ranking: queries of a web search engine with relevant passages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.formats.judgements import read_queries, read_trec_judgements
from jaxrag.data.set_row import SetRow

_MICROSOFT = "https://msmarco.z22.web.core.windows.net/msmarcoranking"
_NIST = "https://trec.nist.gov/data/deep"
_QUERIES, _SMALL = f"{_MICROSOFT}/queries.tar.gz", f"{_MICROSOFT}/collectionandqueries.tar.gz"
_OF_SPLIT = {
    "train": ("queries.train.tsv", "qrels.train.tsv"),
    "dev": ("queries.dev.small.tsv", "qrels.dev.small.tsv"),
    "dl19": ("msmarco-test2019-queries.tsv", "2019qrels-pass.txt"),
    "dl20": ("msmarco-test2020-queries.tsv", "2020qrels-pass.txt"),
}


class MSMarco(BenchmarkBuilder, skip_registration=True):
    """MS MARCO's queries with judged passages; they have no answers.

    "train" has one relevant passage for most queries; "dev" is the small dev set that papers
    evaluate; "dl19" and "dl20" are the judged queries of TREC's Deep Learning tracks 2019 and 2020,
    with grades from 0 to 3 (TREC counts grades 2 and 3 as relevant where a metric is not graded).
    Passages are named by the collection's numbers.
    """

    NAME = "msmarco"
    SPLITS: ClassVar = {"train": 502_939, "dev": 6_980, "dl19": 43, "dl20": 54}
    EVALUATED = "dev"
    CORPUS = "msmarco"
    FILES: ClassVar = {
        "queries.train.tsv": _QUERIES,
        "qrels.train.tsv": f"{_MICROSOFT}/qrels.train.tsv",
        "queries.dev.small.tsv": _SMALL,
        "qrels.dev.small.tsv": _SMALL,
        "msmarco-test2019-queries.tsv": f"{_MICROSOFT}/msmarco-test2019-queries.tsv.gz",
        "2019qrels-pass.txt": f"{_NIST}/2019qrels-pass.txt",
        "msmarco-test2020-queries.tsv": f"{_MICROSOFT}/msmarco-test2020-queries.tsv.gz",
        "2020qrels-pass.txt": f"{_NIST}/2020qrels-pass.txt",
    }
    NEEDS: ClassVar = {split: (names,) for split, names in _OF_SPLIT.items()}
    LICENCE = "non-commercial research (Microsoft's terms for MS MARCO)"
    CITATION = (
        "Bajaj et al., MS MARCO: A Human Generated MAchine Reading COmprehension Dataset, 2016; "
        "Craswell et al., Overview of the TREC 2019 (2020) Deep Learning Track"
    )
    SOURCE = "https://microsoft.github.io/msmarco"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The judged queries in the order of their file."""
        queries, judged = (files[name] for name in _OF_SPLIT[split])
        judgements = read_trec_judgements(judged, corpus=cls.CORPUS)
        yield from read_queries(queries, judgements, judged)
