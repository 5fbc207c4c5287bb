"""Finished runs whose records are given."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxrag.evaluation.records import RunDirectory
from tests.evaluation.fabricate import ENVIRONMENT

RIGHT, WRONG = "Lima", "Quito"


def write_run(path: Path, records: Iterable[dict[str, Any]], **config: Any) -> Path:
    """Writes a run of questions q0, q1, ...; their records lack nothing but what is given."""
    lines = [
        {
            "question_id": f"q{i}",
            "question": f"Question {i}?",
            "gold_answers": [RIGHT],
            "gold_passages": [],
            "prediction": RIGHT,
            "trace": {},
            "cost": {},
            **record,
        }
        for i, record in enumerate(records)
    ]
    config = {"method": {"name": "m"}, "dataset": {"name": "d"}, **config}
    with RunDirectory.open(path, config, environment=ENVIRONMENT) as directory:
        directory.append(lines)
        directory.finish([str(line["question_id"]) for line in lines])
    return path
