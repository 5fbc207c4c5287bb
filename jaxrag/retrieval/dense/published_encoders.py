"""Settings of well-known retrievers' encoders, as their authors use them; R3's dense baselines.

Usage: ``Exact(contriever())``, ``Scann(e5())``, ``Exact(dpr(), metric="l2")``. The
metric of all three is the inner product; E5's vectors have unit length, so that this is their
cosine.
"""

from __future__ import annotations

from jaxrag.retrieval.dense.encoder import BiEncoder


def contriever(checkpoint: str = "hub:facebook/contriever-msmarco") -> BiEncoder:
    """Contriever (Izacard et al. 2022): mean of the last states, not normalised, no prefixes.

    The default is tuned on MS MARCO (R3's Contriever_MS); "hub:facebook/contriever" is the
    unsupervised one.
    """
    return BiEncoder(checkpoint, pooling="mean", normalise=False, max_length=512)


def e5(checkpoint: str = "hub:intfloat/e5-base-v2") -> BiEncoder:
    """E5 (Wang et al. 2022): "query: " and "passage: ", mean of the last states, unit length.

    Not for the instruction-tuned models of that name.
    """
    return BiEncoder(
        checkpoint,
        pooling="mean",
        query_prefix="query: ",
        passage_prefix="passage: ",
        max_length=512,
    )


def dpr(
    queries: str = "hub:facebook/dpr-question_encoder-single-nq-base",
    passages: str = "hub:facebook/dpr-ctx_encoder-single-nq-base",
) -> BiEncoder:
    """DPR (Karpukhin et al. 2020): two networks, the first token's last state, not normalised.

    Title and text of a passage go as a pair, all of it in the first segment; texts are cut to 256
    tokens. The defaults are those trained on Natural Questions alone.
    """
    return BiEncoder(
        passages,
        query_checkpoint=queries,
        pooling="cls",
        title_pair=True,
        max_length=256,
        normalise=False,
    )
