"""Run directories with seeded, made-up numbers, for tests of what reads them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from jaxrag.evaluation.records import RunDirectory
from jaxrag.types import Passage

MODEL = {"name": "SmolLM2-135M-Instruct", "dtype": "float32", "weights": "sha256:0123"}
ENVIRONMENT = {
    "started": "2026-02-03T10:11:12+00:00",
    "jaxrag": "0.1.0",
    "commit": "0123456789abcdef",
    "python": "3.11.2",
    "system": "Linux x86_64",
    "devices": {"cpu:cpu": 1},
    "packages": {"jax": "0.10.0"},
}
PLACES = ("Lisbon", "Praia", "Kabul", "Quito", "Oslo", "Suva", "Lomé", "Doha", "Minsk", "Rabat")
NASTY = "</script><script>alert('x')</script><!-- & \"quoted\" ]]>"


def question(i: int) -> dict[str, Any]:
    place = PLACES[i % len(PLACES)]
    return {
        "question_id": f"q{i:05}",
        "question": f"What is the capital of country {i}, on the river {NASTY if i == 3 else i}?",
        "gold_answers": [place, f"{place} City"],
        "gold_passages": [f"p{i}"],
    }


def run(
    path: Path,
    method: str,
    *,
    n: int = 200,
    dataset: str = "factbook",
    seed: int = 0,
    model: str = str(MODEL["name"]),
) -> Path:
    """A finished run of ``no_retrieval``, ``standard_rag``, ``dpr_ais``, ``pairs`` or ``dtr``."""
    difficulty = np.random.default_rng(99).random(n)  # shared by all methods, so runs are paired
    rng = np.random.default_rng(seed)
    config = {
        "method": {"name": method, "threshold": 0.3},
        "dataset": {"name": dataset, "identity": "sha256:4567", "questions": n},
        "language_model": MODEL | {"name": model},
        "retriever": {"name": "all-MiniLM-L6-v2", "index": "scann", "passages": 12_345},
    }
    records = [_record(i, method, float(difficulty[i]), rng) for i in range(n)]
    spent = {"store_hits": 1, "stored": 0}  # hits on results of the run itself
    times = [
        {"question_id": r["question_id"], "seconds": float(rng.gamma(2, 0.4)), **spent}
        for r in records
    ]
    with RunDirectory.open(path, config, environment=ENVIRONMENT) as directory:
        directory.append(records, times)
        named = directory.named_passages()
        directory.finish([r["question_id"] for r in records], passages=map(_passage, named))
    return path


def _passage(name: str) -> Passage:
    words = " ".join(PLACES[(int(name[1:]) + j) % len(PLACES)] for j in range(5))
    return Passage(name, f"Country {name}: Government", f"capital: {words} {NASTY} " + 30 * "word ")


def _record(i: int, method: str, difficulty: float, rng: np.random.Generator) -> dict[str, Any]:
    base = question(i)
    if i == 7 and method == "dtr":
        return base | {"error": "ValueError: the prompt is longer than the model's context"}
    right, wrong = base["gold_answers"][0], PLACES[(i + 3) % len(PLACES)]
    shared = np.random.default_rng(i)  # the direct answer is the same in every run
    knows = shared.random() < 0.25 * (1 - difficulty)
    u = float(shared.gamma(1.2, 0.25 if knows else 0.6))
    empty = i % 97 == 5
    direct = {"text": "" if empty else right if knows else wrong, "u": None if empty else u}
    direct |= {"tokens": 3, "logprobs": [-u / 2, -u, -3 * u / 2], "raw": "raw text"}
    uncertainty = math.inf if empty else u
    gated = method in ("dtr", "pairs")
    retrieve = uncertainty >= 0.3 if gated else method != "no_retrieval"
    trace: dict[str, Any] = {"direct": direct} if gated or method == "no_retrieval" else {}
    if gated:
        value = None if empty else u
        trace["gate"] = {"name": "nll", "value": value, "threshold": 0.3, "retrieve": retrieve}
    text, paths = direct["text"], 0
    if retrieve:
        paths = 1 if method == "standard_rag" else 2
        found = rng.random() < 0.6 + 0.1 * paths
        trace |= _retrieval(i, paths, found, rng)
        good = found and rng.random() < 0.55 * (1.2 - difficulty)
        text = right if good else f"{right} of old" if rng.random() < 0.1 else wrong
    trace["answer"] = {"text": text, "raw": text + " <end>", "u": float(rng.gamma(1, 0.5))}
    calls = 1 + (paths > 1) + (retrieve and gated)
    cost = {"llm_calls": int(calls), "prompt_tokens": int(120 * calls + 90 * paths)}
    cost |= {"new_tokens": int(6 + 60 * (paths > 1 or gated)), "searches": paths}
    return base | {"prediction": text, "trace": trace, "cost": cost}


def _retrieval(i: int, paths: int, found: bool, rng: np.random.Generator) -> dict[str, Any]:
    searches, pool = [], {}
    for path in "qp"[:paths]:
        ids = [f"p{int(x)}" for x in rng.choice(400, size=5, replace=False) + 1000]
        if found and path == "q":
            ids[int(rng.integers(3))] = f"p{i}"
        scores = sorted((float(s) for s in rng.uniform(0.3, 0.9, 5)), reverse=True)
        query = f"query {i}" if path == "q" else f"A passage about country {i} {NASTY}"
        searches.append({"path": path, "query": query, "ids": ids, "scores": scores})
        pool |= dict(zip(ids, scores, strict=True))
    kept = sorted(pool, key=lambda name: -pool[name])[:3]
    candidates = [
        {"id": name, "s1": s, "s2": s - 0.1, "score": s * (s - 0.1)} for name, s in pool.items()
    ]
    selected = {"ids": kept, "scores": [pool[name] for name in kept], "candidates": candidates}
    trace: dict[str, Any] = {"searches": searches, "selected": selected}
    return trace | ({"pseudo_context": f"Country {i} has a capital. {NASTY}"} if paths > 1 else {})
