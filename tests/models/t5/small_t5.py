"""Small random T5 checkpoints with a tokenizer, and what they compute in float64 NumPy.

The reference is written from the papers: one sequence, no cache, pair by pair.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from jaxrag.models.t5.checkpoint import parameter_shapes
from jaxrag.models.t5.config import read_t5_config
from tests.models.checkpoint.sharded import write_checkpoint

SPECIAL = ("<pad>", "</s>", "<unk>")
WORDS = (
    *("▁the", "▁cat", "▁sat", "▁on", "▁a", "▁mat", "▁who", "▁wrote", "▁capital", "▁of", "▁chad"),
    *(";", "**", ":", ",", "?", "▁"),
)
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
VOCABULARY = (*SPECIAL, *WORDS, *LETTERS)  # 56 tokens

# Small, and away from every default: depths, heads, buckets, distances, eps.
BASE: dict[str, Any] = {
    "model_type": "t5",
    "vocab_size": 60,
    "d_model": 24,
    "d_kv": 7,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 16,
    "relative_attention_max_distance": 40,
    "layer_norm_epsilon": 3e-4,
    "dropout_rate": 0.2,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
    "is_encoder_decoder": True,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "1.0": {**BASE, "feed_forward_proj": "relu", "tie_word_embeddings": True},
    "1.1": {
        **BASE,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "num_layers": 3,
        "num_decoder_layers": 1,
        "num_heads": 3,
        "d_kv": 9,
        "relative_attention_num_buckets": 12,
        "relative_attention_max_distance": 21,
    },
    # as transformers 5 writes a T5 1.1 whose head is its embedding table
    "mixed": {
        **{key: value for key, value in BASE.items() if key != "num_decoder_layers"},
        "feed_forward_proj": "gated-relu",
        "tie_word_embeddings": True,
        "scale_decoder_outputs": False,
        "decoder_start_token_id": 2,
    },
}


def random_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Weights large enough that every part of the network shows, and answers that do end."""
    read, random = read_t5_config(config, source="small"), np.random.default_rng(seed)
    made = {}
    for name, shape in sorted(parameter_shapes(read).items()):
        table = ".relative" in name or (name == "shared.weight" and read.scaled)
        # queries are small in a T5, whose attention does not scale
        scale = 1.0 if table else 0.1 if name.endswith(".q.weight") else 0.2
        made[name] = random.normal(size=shape) * scale + ("layer_norm" in name)
        if name in ("shared.weight", "lm_head.weight"):
            made[name][config["eos_token_id"]] *= 2.0
    # or a tied model would say what it read last for ever
    made["decoder.final_layer_norm.weight"] *= np.sign(random.normal(size=config["d_model"]))
    return {name: array.astype(np.float32) for name, array in made.items()}


def write(
    directory: Path, config: dict[str, Any], *, seed: int = 0, shards: int = 1, **changes: Any
) -> dict[str, np.ndarray]:
    """A whole checkpoint, tokenizer included; returns its weights."""
    config = {**config, **changes}
    tensors = random_tensors(config, seed)
    write_checkpoint(directory, config, tensors, shards=shards)
    tokenizer().save_pretrained(directory)
    return tensors


def tokenizer() -> PreTrainedTokenizerFast:
    """A Unigram model that puts the end token after a text, as T5's do; it has no template."""
    scores = [(token, 0.0 if token in SPECIAL else -float(i)) for i, token in enumerate(VOCABULARY)]
    backend = Tokenizer(models.Unigram(scores, unk_id=2, byte_fallback=False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True),
        ]
    )
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")  # type: ignore
    backend.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


def bucket(relative: int, buckets: int, max_distance: int, *, causal: bool) -> int:
    """Raffel et al. (2020), section 2.1, of one pair of positions."""
    first = 0
    if not causal:
        buckets //= 2
        first = buckets if relative > 0 else 0
    distance = max(-relative, 0) if causal else abs(relative)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return first + min(exact + int(share * (buckets - exact)), buckets - 1)


def reference_logits(
    config: dict[str, Any], tensors: dict[str, np.ndarray], source: Any, targets_in: Any
) -> np.ndarray:
    """Logits [t v] of one answer."""
    w = {name: array.astype(np.float64) for name, array in tensors.items()}
    encoded = _stack(config, w, "encoder", w["shared.weight"][np.asarray(source)], None)
    x = _stack(config, w, "decoder", w["shared.weight"][np.asarray(targets_in)], encoded)
    if config.get("scale_decoder_outputs", config["tie_word_embeddings"]):
        x = x / math.sqrt(config["d_model"])
    return x @ w.get("lm_head.weight", w["shared.weight"]).T


def _stack(
    config: dict[str, Any], w: dict[str, np.ndarray], name: str, x: np.ndarray, encoded: Any
) -> np.ndarray:
    decodes = encoded is not None
    layers = config.get("num_decoder_layers" if decodes else "num_layers", config["num_layers"])
    table = w[f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    sizes = (
        config["relative_attention_num_buckets"],
        config["relative_attention_max_distance"],
    )
    places = range(len(x))
    bias = np.array(
        [[table[bucket(k - q, *sizes, causal=decodes)] for k in places] for q in places]
    )
    hidden = np.triu(np.ones((len(x), len(x)), bool), 1) & decodes
    for i in range(layers):
        at = f"{name}.block.{i}.layer"
        y = _norm(config, w, x, f"{at}.0")
        x = x + _attend(config, w, f"{at}.0.SelfAttention", y, y, bias, hidden)
        if decodes:
            y = _norm(config, w, x, f"{at}.1")
            x = x + _attend(config, w, f"{at}.1.EncDecAttention", y, encoded, None, None)
        at = f"{at}.{1 + decodes}"
        x = x + _dense(config, w, f"{at}.DenseReluDense", _norm(config, w, x, at))
    return _norm(config, w, x, name, "final_layer_norm")


def _norm(
    config: dict[str, Any], w: dict[str, np.ndarray], x: np.ndarray, at: str, name="layer_norm"
) -> np.ndarray:
    mean = (x**2).mean(-1, keepdims=True)
    return x / np.sqrt(mean + config["layer_norm_epsilon"]) * w[f"{at}.{name}.weight"]


def _attend(config, w, at, x, seen, bias, hidden) -> np.ndarray:
    size, parts = config["d_kv"], []
    q, k, v = (y @ w[f"{at}.{n}.weight"].T for n, y in (("q", x), ("k", seen), ("v", seen)))
    for head in range(config["num_heads"]):
        own = np.s_[:, head * size : (head + 1) * size]
        scores = q[own] @ k[own].T
        if bias is not None:
            scores = np.where(hidden, -np.inf, scores + bias[:, :, head])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        parts.append(weights / weights.sum(-1, keepdims=True) @ v[own])
    return np.concatenate(parts, -1) @ w[f"{at}.o.weight"].T


def _dense(config, w, at, x) -> np.ndarray:
    kind = config["feed_forward_proj"]
    name = "wi_0" if kind.startswith("gated") else "wi"
    y = x @ w[f"{at}.{name}.weight"].T
    if kind.endswith("relu"):
        y = np.maximum(y, 0)
    else:
        y = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    if kind.startswith("gated"):
        y = y * (x @ w[f"{at}.wi_1.weight"].T)
    return y @ w[f"{at}.wo.weight"].T
