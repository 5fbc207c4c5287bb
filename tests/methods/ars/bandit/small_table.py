"""Small reward tables, written as a run would leave them."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from jaxrag.methods.ars.bandit.reward_table import ids_hash

ARMS, FEATURES = 3, 4


def contexts_and_scores(questions: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two kinds of questions, told by their first two features: K = 1 alone helps, or K = 3."""
    rng = np.random.default_rng(seed)
    kind = np.arange(questions) % 2
    contexts = 0.1 * rng.normal(size=(questions, FEATURES))
    contexts[np.arange(questions), kind] += 1
    right = np.where(kind[:, None], [0, 0, 1], [1, 0, 0])
    return contexts.astype(np.float32), right.astype(float)


def lines_of(right: np.ndarray, trained: int) -> list[dict[str, Any]]:
    """A line a question; the first ``trained`` are of the training part."""
    return [
        {
            "question_id": f"q{i}",
            "question": f"Question {i}?",
            "part": "train" if i < trained else "test",
            "predictions": ["answer"] * len(row),
            "exact_match": row.tolist(),
            "f1": row.tolist(),
            "correct": row.astype(int).tolist(),
            "base": row.tolist(),
        }
        for i, row in enumerate(right)
    ]


def write(
    path: Path, *, questions: int = 40, trained: int = 28, seed: int = 0, dataset: str = "boolq"
) -> Path:
    """A learnable table at ``path``."""
    contexts, right = contexts_and_scores(questions, seed)
    settle(path, contexts, lines_of(right, trained), dataset=dataset)
    return path


def settle(
    path: Path,
    contexts: np.ndarray,
    lines: list[dict[str, Any]],
    *,
    arms: int = ARMS,
    dataset: str = "boolq",
) -> None:
    """Writes the three files."""
    path.mkdir(parents=True, exist_ok=True)
    np.save(path / "contexts.npy", contexts)
    (path / "rewards.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ids = ids_hash(line["question_id"] for line in lines)
    config = {
        "table": {"kind": "rewards", "arms": arms, "questions": len(lines), "ids": ids},
        "encoder": "encoder A",
        "dataset": {"name": dataset},
    }
    head = {"config": config, "environments": [{"jaxrag": "test", "started": "2026-01-01"}]}
    (path / "config.json").write_text(json.dumps(head))
