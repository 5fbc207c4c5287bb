"""The report's per-question data: every trace of every run, packed to travel inside the page."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrag.evaluation import metrics
from jaxrag.evaluation.records import RunRecords, read_passages
from jaxrag.evaluation.summary import by_dataset, labels

PASSAGE_CHARACTERS = 1_500  # what the page shows of a passage


def packed(runs: Sequence[RunRecords]) -> str:
    """Base64 of gzipped JSON; the same runs give the same text."""
    plain = [browsable(name, members) for name, members in by_dataset(runs).items()]
    data = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    safe = data.encode("utf-8", errors="backslashreplace")
    return base64.b64encode(gzip.compress(safe, compresslevel=6, mtime=0)).decode()


def browsable(dataset: str, runs: Sequence[RunRecords]) -> dict[str, Any]:
    """A data set as the page's script reads it.

    ``runs`` are labels; each of ``questions`` has ``answers`` in their order, null for a run that
    did not ask it; ``passages`` maps the ids that traces name to title and text, as far as the
    runs kept them.
    """
    questions: dict[str, dict[str, Any]] = {}
    for position, run in enumerate(runs):
        for record in run.records:
            found = questions.setdefault(
                record["question_id"],
                {
                    "id": record["question_id"],
                    "text": record["question"],
                    "gold": record["gold_answers"],
                    "passages": record.get("gold_passages", []),
                    "answers": [None] * len(runs),
                },
            )
            found["answers"][position] = _answer(record)
    kept: dict[str, Any] = {}
    for run in runs:
        for name, passage in read_passages(run.path).items():
            kept.setdefault(name, [passage["title"], passage["text"][:PASSAGE_CHARACTERS]])
    return {
        "dataset": dataset,
        "runs": labels(runs),
        "questions": list(questions.values()),
        "passages": kept,
    }


def _answer(record: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in record:
        return {"error": record["error"]}
    scores = metrics.accuracy(record["prediction"], record["gold_answers"])
    return {
        "text": record["prediction"],
        "em": scores.get("exact_match"),
        "f1": _short(scores.get("f1")),
        "contains": scores.get("contains"),
        "trace": _short(record.get("trace", {})),
        "cost": record.get("cost", {}),
    }


def _short(value: Any) -> Any:
    """The same JSON with numbers at four digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _short(entry) for key, entry in value.items()}
    return [_short(entry) for entry in value] if isinstance(value, list) else value
