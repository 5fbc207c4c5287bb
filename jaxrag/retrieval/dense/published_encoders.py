"""Settings of well-known retrievers' encoders, as their authors use them.

Usage: ``Exact(contriever())``, ``Exact(dpr(), metric="l2")``. docs/encoders.md has a table.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from jaxrag.models.checkpoint.files import short_name
from jaxrag.retrieval.dense.encoder import BiEncoder

INSTRUCTION = "Represent this sentence for searching relevant passages: "
"""Put before queries by bge (version 1.5)."""


def _published(checkpoint: str, **settings: Any) -> BiEncoder:
    """An encoder of which nothing is left to the checkpoint's files."""
    fixed = {"query_prefix": "", "passage_prefix": "", "matryoshka": 0, "normalise": True}
    return BiEncoder(checkpoint, **fixed | settings)


def bge(checkpoint: str = "hub:BAAI/bge-large-en-v1.5", *, instruction: bool = True) -> BiEncoder:
    """bge (Xiao et al. 2023): the first token's state, unit length.

    ``instruction`` puts `INSTRUCTION` before queries, as the model's authors advise; PAIRS and DTR
    do not.
    """
    prefix = INSTRUCTION if instruction else ""
    return _published(checkpoint, pooling="cls", query_prefix=prefix, max_length=512)


def nomic(checkpoint: str = "hub:nomic-ai/nomic-embed-text-v1.5") -> BiEncoder:
    """nomic-embed-text (Nussbaum et al. 2024): a task before the text, mean of the states."""
    prefixes = {"query_prefix": "search_query: ", "passage_prefix": "search_document: "}
    return _published(checkpoint, pooling="mean", max_length=2048, **prefixes)


def contriever(checkpoint: str = "hub:facebook/contriever-msmarco") -> BiEncoder:
    """Contriever (Izacard et al. 2022): mean of the last states, not normalised, no prefixes.

    The default is tuned on MS MARCO (R3's Contriever_MS); "hub:facebook/contriever" is the
    unsupervised one.
    """
    return _published(checkpoint, pooling="mean", normalise=False, max_length=512)


def e5(checkpoint: str = "hub:intfloat/e5-base-v2") -> BiEncoder:
    """E5 (Wang et al. 2022): "query: " and "passage: ", mean of the last states, unit length.

    Not for the instruction-tuned models of that name.
    """
    prefixes = {"query_prefix": "query: ", "passage_prefix": "passage: "}
    return _published(checkpoint, pooling="mean", max_length=512, **prefixes)


def dpr(
    queries: str = "hub:facebook/dpr-question_encoder-single-nq-base",
    passages: str = "hub:facebook/dpr-ctx_encoder-single-nq-base",
) -> BiEncoder:
    """DPR (Karpukhin et al. 2020): two networks, the first token's last state, not normalised.

    Title and text of a passage go as a pair, all of it in the first segment; texts are cut to 256
    tokens. The defaults are those trained on Natural Questions alone.
    """
    return _published(
        passages,
        query_checkpoint=queries,
        pooling="cls",
        title_pair=True,
        max_length=256,
        normalise=False,
    )


def dpr_questions() -> BiEncoder:
    """DPR's encoder of questions, for passages whose vectors were published."""
    return BiEncoder(
        "hub:facebook/dpr-question_encoder-single-nq-base",
        pooling="cls",
        query_prefix="",
        max_length=256,
        matryoshka=0,
        normalise=False,
    )


def published_encoder(checkpoint: str) -> BiEncoder:
    """The encoder of a checkpoint with its family's settings above, known by the name.

    Those of bge get no instruction. All others are used as their checkpoint declares.
    """
    name = short_name(checkpoint).lower()
    families = {
        "bge-": partial(bge, instruction=False),
        "nomic-embed": nomic,
        "m?contriever": contriever,
        "(multilingual-)?e5-(small|base|large)(?!-instruct)": e5,
    }
    family = next((make for begin, make in families.items() if re.match(begin, name)), BiEncoder)
    return family(checkpoint)
