"""Abstract arguments of the encoder's and the reranker's jitted functions, for test_export.py."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jaxrag.models.bert.checkpoint import initialise, read_bert_config
from jaxrag.models.bert.network import BertClassifier, BertEncoder
from jaxrag.models.bert.sidr import SidrNetwork
from jaxrag.models.parameters import flatten, unflatten
from jaxrag.retrieval import rerank
from jaxrag.retrieval.dense import encoder
from jaxrag.retrieval.sidr import encoder as sidr
from tests.models.bert.small_bert import BERT, XLM_ROBERTA


def parameters(module: BertEncoder | BertClassifier | SidrNetwork):
    tree = jax.eval_shape(lambda: initialise(module))
    leaves = {
        name: jax.ShapeDtypeStruct(
            leaf.shape, jnp.float32 if "norm" in name.lower() else module.dtype
        )
        for name, leaf in flatten(tree).items()
    }
    return unflatten(leaves, tree)


def cases() -> Iterator[Any]:
    bfloat16 = jnp.dtype("bfloat16")
    ids, lengths = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((8, 32), (8,)))
    module: Any = BertEncoder(read_bert_config(BERT, source="test"), bfloat16)
    settings: dict[str, Any] = {"module": module, "pooling": "mean", "normalise": True}
    yield encoder.embed_tokens, (parameters(module), ids, lengths), settings
    module = BertClassifier(read_bert_config(XLM_ROBERTA, source="test"), bfloat16)
    yield rerank.score_tokens, (parameters(module), ids, ids, lengths), {"module": module}
    module = SidrNetwork(read_bert_config(BERT, source="test"), bfloat16, first=7)
    settings = {"module": module, "top": 9, "own_tokens": True}
    yield sidr.embed_tokens, (parameters(module), ids, lengths), settings
    yield sidr._entries, (jax.ShapeDtypeStruct((8, 33), jnp.float32),), {"width": 20}
