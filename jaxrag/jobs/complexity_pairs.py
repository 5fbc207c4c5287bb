"""What Adaptive-RAG's classifier is trained on, from runs of `jaxrag.methods.adaptive_labels`.

``pairs.jsonl`` has a line a question: ``question_id``, ``part`` ("train" or "held_out", drawn by
the id), ``input`` and ``target``, what the classifier is given and is to write, and ``label_from``:
"silver" where a strategy answered rightly, "bias" where the data set decided. ``complexity.json``
counts them. A training needs questions of one hop and of more, so several data sets' runs go into
one file.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.table import Table

from jaxrag.evaluation import jsonl
from jaxrag.evaluation.records import read_run
from jaxrag.methods import loops
from jaxrag.methods.adaptive_rag import classifier_template
from jaxrag.retrieval.manifest import replacing
from jaxrag.types import InputError

PAIRS, COUNTS = "pairs.jsonl", "complexity.json"


@dataclasses.dataclass(frozen=True)
class ComplexityPairs:
    """How pairs are made of labelled questions.

    Attributes:
      prompts: the set whose role "complexity" is the input and whose words are the targets; the one
        that `adaptive_rag` will ask with.
      held_out: share of the questions that is not trained on.
      seed: of the draw.
    """

    prompts: str = "iterative"
    held_out: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            raise InputError(f"held_out is {self.held_out}; it is a share from 0 to below 1.")


def write_pairs(
    runs: Sequence[str | Path], workdir: str | Path, settings: ComplexityPairs | None = None
) -> Path:
    """Writes the pairs of finished runs, one data set after the other; returns the file.

    Raises:
      InputError: a directory is no finished run of `adaptive_labels`, a question of it failed, a
        question is in two of them, or nothing is left to train on.
    """
    settings = settings or ComplexityPairs()
    lines = [line for path in runs for line in _lines(Path(path), settings)]
    counts = collections.Counter(line["question_id"] for line in lines)
    if doubled := [name for name, count in counts.items() if count > 1]:
        raise InputError(
            f"Question {doubled[0]} is in more than one of {', '.join(map(str, runs))}: give each "
            "data set once."
        )
    if not any(line["part"] == "train" for line in lines):
        raise InputError(
            f"{', '.join(map(str, runs)) or 'no run'}: no question is left to train on; label more "
            "questions, or set method.bias to another than drop."
        )
    Path(workdir).mkdir(parents=True, exist_ok=True)
    file = Path(workdir) / PAIRS
    _write(file, (json.dumps(line, ensure_ascii=False, allow_nan=False) for line in lines))
    _write(Path(workdir) / COUNTS, [json.dumps(_counted(lines), indent=2)])
    return file


def described(path: str | Path) -> Table:
    """How many pairs there are of each target, by part and by where the target comes from."""
    lines = jsonl.read(Path(path))
    shown = Table("target", "questions", "to train on", "silver")
    for target in sorted({line["target"] for line in lines}):
        some = [line for line in lines if line["target"] == target]
        trained = sum(line["part"] == "train" for line in some)
        silver = sum(line["label_from"] == "silver" for line in some)
        shown.add_row(target, *map(str, (len(some), trained, silver)))
    return shown


def pair_line(record: Mapping[str, Any], settings: ComplexityPairs) -> dict[str, Any] | None:
    """The line of a question's record; None where the question is left out."""
    template = classifier_template(settings.prompts)
    label = record["trace"]["label"]
    if label["strategy"] is None:
        return None
    place = get_args(loops.Strategy).index(label["strategy"])
    name = record["question_id"]
    draw = zlib.crc32(f"{settings.seed} {name}".encode()) / 2**32
    return {
        "question_id": name,
        "part": "held_out" if draw < settings.held_out else "train",
        "input": template.prompt(question=record["question"]),
        "target": template.words[place],
        "label_from": "silver" if label["silver"] else "bias",
    }


def _lines(path: Path, settings: ComplexityPairs) -> list[dict[str, Any]]:
    run = read_run(path)
    if not run.finished:
        raise InputError(f"{path} is not finished: go on with that run first.")
    if failed := [record["question_id"] for record in run.records if "error" in record]:
        raise InputError(
            f"{len(failed)} of {len(run.records)} questions of {path} failed, such as {failed[0]}; "
            "the same command asks these again."
        )
    if any("label" not in record["trace"] for record in run.records):
        raise InputError(f"{path} is no run of adaptive_labels: its traces have no label.")
    lines = (pair_line(record, settings) for record in run.records)
    return [line for line in lines if line is not None]


def _counted(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How many pairs there are of each part, target and origin."""
    return {
        field: dict(sorted(collections.Counter(line[field] for line in lines).items()))
        for field in ("part", "target", "label_from")
    }


def _write(path: Path, lines: Iterable[str]) -> None:
    with replacing(path) as stream:
        for line in lines:
            stream.write(line.encode() + b"\n")
