"""Small random BERT and XLM-RoBERTa checkpoints, and what they compute in float64 NumPy.

Settings are away from the defaults wherever a mistake could hide behind one.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from jaxrag.models.bert.checkpoint import parameter_shapes, read_bert_config
from jaxrag.models.bert.network import BertClassifier, BertEncoder
from jaxrag.models.checkpoint.files import write_checkpoint

VOCABULARY = "the a cat feline sat on mat rug river bank money of is in capital paris france rome"
WORDS = VOCABULARY.split()
BERT: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": 40,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-2,
    "hidden_act": "gelu",
    "pad_token_id": 0,
    "id2label": {"0": "score"},
    "label2id": {"score": 0},
}
XLM_ROBERTA: dict[str, Any] = BERT | {
    "model_type": "xlm-roberta",
    "num_attention_heads": 4,
    "type_vocab_size": 1,
    "layer_norm_eps": 3e-3,
    "pad_token_id": 3,
}
CONFIGS = {"bert": BERT, "xlm-roberta": XLM_ROBERTA}


def random_tensors(config: dict[str, Any], *, classifier: bool, seed: int = 0) -> dict:
    """Parameters large enough that every one of them shows in the output."""
    read = read_bert_config(config, source="test")
    module = (BertClassifier if classifier else BertEncoder)(read, jnp.dtype("float32"))
    random = np.random.default_rng(seed)
    return {
        name: random.normal(1.0 if name.endswith("LayerNorm.weight") else 0.0, 0.3, shape).astype(
            np.float32
        )
        for name, shape in parameter_shapes(module).items()
    }


def write(directory: Path, config: dict[str, Any], *, classifier: bool, seed: int = 0) -> Path:
    """A whole checkpoint, tokenizer included."""
    write_checkpoint(directory, config, random_tensors(config, classifier=classifier, seed=seed))
    tokenizer(config).save_pretrained(directory)
    return directory


def tokenizer(config: dict[str, Any]) -> PreTrainedTokenizerFast:
    """Whole words, in the template of the model's family."""
    bert = config["model_type"] == "bert"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] if bert else ["<s>", "</s>", "<unk>", "<pad>"]
    pad, unk, begin, end = special if bert else (special[i] for i in (3, 2, 0, 1))
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=unk))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    middle = end if bert else f"{end} {end}"
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {middle} $B:1 {end}:1" if bert else f"{begin} $A {middle} $B {end}",
        special_tokens=[(token, vocabulary[token]) for token in (begin, end)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=pad,
        unk_token=unk,
        cls_token=begin,
        sep_token=end,
        model_input_names=["input_ids", *["token_type_ids"] * bert, "attention_mask"],
    )


def hidden_states(tensors: dict, config: dict[str, Any], ids, segments, where) -> np.ndarray:
    """The last layer's states [b t d], one row and head at a time."""
    p = {
        name.split(".", 1)[1] if _prefixed(name) else name: np.asarray(a, np.float64)
        for name, a in tensors.items()
    }
    eps, heads = config["layer_norm_eps"], config["num_attention_heads"]
    if config["model_type"] == "bert":
        positions = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
    else:
        pad = config["pad_token_id"]
        positions = np.full(ids.shape, pad)
        for row, places in enumerate(ids):  # the n-th real token, from 1, has position pad + n
            real = [i for i, token in enumerate(places) if token != pad]
            positions[row, real] = [pad + 1 + n for n in range(len(real))]
    e = "embeddings."
    x = p[e + "word_embeddings.weight"][ids] + p[e + "position_embeddings.weight"][positions]
    x = x + p[e + "token_type_embeddings.weight"][segments]
    x = _norm(x, p, e + "LayerNorm", eps)
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}."
        y = _attend(x, p, layer + "attention.self.", heads, where)
        x = _norm(
            x + _linear(y, p, layer + "attention.output.dense"),
            p,
            layer + "attention.output.LayerNorm",
            eps,
        )
        y = _gelu(_linear(x, p, layer + "intermediate.dense"))
        x = _norm(x + _linear(y, p, layer + "output.dense"), p, layer + "output.LayerNorm", eps)
    return x


def logits(tensors: dict, config: dict[str, Any], ids, segments, where) -> np.ndarray:
    """The classifier's logits [b l]."""
    p = {name: np.asarray(a, np.float64) for name, a in tensors.items()}
    first = hidden_states(tensors, config, ids, segments, where)[:, 0]
    if config["model_type"] == "bert":
        return _linear(np.tanh(_linear(first, p, "bert.pooler.dense")), p, "classifier")
    return _linear(np.tanh(_linear(first, p, "classifier.dense")), p, "classifier.out_proj")


def _prefixed(name: str) -> bool:
    return name.startswith(("bert.", "roberta."))


def _linear(x, p, name):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def _norm(x, p, name, eps):
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return y * p[name + ".weight"] + p[name + ".bias"]


def _gelu(x):
    return x * 0.5 * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def _attend(x, p, name, heads, where):
    query, key, value = (_linear(x, p, name + part) for part in ("query", "key", "value"))
    out, size = np.zeros_like(x), x.shape[-1] // heads
    for row in range(len(x)):
        for head in range(heads):
            part = np.s_[row, :, head * size : (head + 1) * size]
            scores = query[part] @ key[part].T / math.sqrt(size)
            weights = np.exp(scores - scores.max()) * where[row]
            out[part] = weights / weights.sum(-1, keepdims=True) @ value[part]
    return out
