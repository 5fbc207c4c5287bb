"""Abstract arguments of the encoder's and the reranker's jitted functions, for test_export.py."""

import jax
import jax.numpy as jnp
from flax.traverse_util import unflatten_dict

from jaxrag.models.bert import BertClassifier, BertEncoder
from jaxrag.models.bert_checkpoint import parameter_shapes, read_bert_config
from jaxrag.models.sidr import Sidr
from jaxrag.retrieval import encoder, rerank, sidr
from tests.models.small_bert import BERT, XLM_ROBERTA


def parameters(module: BertEncoder | BertClassifier | Sidr):
    leaves = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32 if "norm" in name.lower() else module.dtype)
        for name, shape in parameter_shapes(module).items()
    }
    return unflatten_dict(leaves, sep=".")


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
    module = Sidr(read_bert_config(BERT, source="test"), jnp.dtype("bfloat16"), first=7)
    settings = {"module": module, "top": 9, "own_tokens": True}
    return sidr.embed_tokens, (parameters(module), *texts()), settings


def sidr_entries():
    return sidr._entries, (jax.ShapeDtypeStruct((8, 33), jnp.float32),), {"width": 20}


CASES = {
    "jaxrag.retrieval.sidr.embed_tokens": sidr_tokens,
    "jaxrag.retrieval.sidr._entries": sidr_entries,
    "jaxrag.retrieval.encoder.embed_tokens": embed_tokens,
    "jaxrag.retrieval.rerank.score_tokens": score_tokens,
}
