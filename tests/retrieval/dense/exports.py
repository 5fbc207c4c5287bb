"""Abstract arguments of the encoder's and the reranker's jitted functions, for test_export.py."""

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


def texts():
    return jax.ShapeDtypeStruct((8, 32), jnp.int32), jax.ShapeDtypeStruct((8,), jnp.int32)


def embed_tokens():
    module = BertEncoder(read_bert_config(BERT, source="test"), jnp.dtype("bfloat16"))
    settings = {"module": module, "pooling": "mean", "normalise": True}
    return encoder.embed_tokens, (parameters(module), *texts()), settings


def score_tokens():
    module = BertClassifier(read_bert_config(XLM_ROBERTA, source="test"), jnp.dtype("bfloat16"))
    ids, lengths = texts()
    return rerank.score_tokens, (parameters(module), ids, ids, lengths), {"module": module}


def sidr_tokens():
    module = SidrNetwork(read_bert_config(BERT, source="test"), jnp.dtype("bfloat16"), first=7)
    settings = {"module": module, "top": 9, "own_tokens": True}
    return sidr.embed_tokens, (parameters(module), *texts()), settings


def sidr_entries():
    return sidr._entries, (jax.ShapeDtypeStruct((8, 33), jnp.float32),), {"width": 20}


CASES = {
    "jaxrag.retrieval.sidr.encoder.embed_tokens": sidr_tokens,
    "jaxrag.retrieval.sidr.encoder._entries": sidr_entries,
    "jaxrag.retrieval.dense.encoder.embed_tokens": embed_tokens,
    "jaxrag.retrieval.rerank.score_tokens": score_tokens,
}
