"""Pairs that a query optimizer is distilled from, out of a finished run; METHODS section 4.4.

``pairs.jsonl`` has for each question ``question_id``, ``question``, ``context`` (C; "" where none
was extracted), ``input`` (what the student reads), ``queries`` (the teacher's, read out of ``raw``)
and ``target`` (the same as the student is to write them, "a; b **"), ``parseable`` and ``part``:
"train", "held_out", or "test" for the test questions of a draw. Where the teacher's text could not
be read (``parseable`` false), ``queries`` is empty and ``target`` null: nothing is learned from it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from jaxrag.evaluation import jsonl
from jaxrag.evaluation.records import Run as Records
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.significance import intervals
from jaxrag.functional.query_lists import write_queries
from jaxrag.methods import errr_pairs
from jaxrag.methods.queries import Trained
from jaxrag.retrieval.manifest import replacing
from jaxrag.run import Run
from jaxrag.types import InputError

PAIRS = "pairs.jsonl"


def write_pairs(run: Run, workdir: Path, records: Records) -> Path:
    """Writes the pairs of a run of `jaxrag.methods.errr_pairs` to ``workdir``; returns the file."""
    method, part_of = run.method, getattr(run.data, "part_of", lambda _: "train")
    assert isinstance(method, errr_pairs.Config)
    return _write(
        workdir / PAIRS,
        [
            pair_line(
                record, method.student, assigned(record["question_id"], part_of(i), method.held_out)
            )
            for i, record in enumerate(records.records)
        ],
    )


def pairs_of(directory: str | Path, student: Trained, *, held_out: float, file: Path) -> Path:
    """Writes the pairs of any finished run whose trace has queries, such as frozen ERRR's.

    Args:
      directory: of the run.
      student: what the trained model will read.
      held_out: see `assigned`.
      file: where they are written.

    Raises:
      InputError: the directory holds no run, or one that failed, or wrote no queries.
    """
    lines = [
        pair_line(record, student, assigned(record["question_id"], "train", held_out))
        for record in read_run(Path(directory)).records
    ]
    return _write(file, lines)


def assigned(question_id: str, drawn: str, held_out: float) -> str:
    """What a question is for: "test" where it was drawn so, else "held_out" or "train" by its id.

    Args:
      question_id: decides, so that the same question is held out of every table.
      drawn: the part of the data that it is from.
      held_out: share that is kept out of training.
    """
    if drawn == "test":
        return drawn
    return "held_out" if zlib.crc32(question_id.encode()) / 2**32 < held_out else "train"


def pair_line(record: Mapping[str, Any], student: Trained, part: str) -> dict[str, Any]:
    """The line of pairs.jsonl that a question's record gives.

    Raises:
      InputError: the question failed, has no queries in its trace, or the student is to be shown
        a context that was not extracted.
    """
    trace, name = record.get("trace") or {}, record["question_id"]
    if record.get("error") or "queries" not in trace:
        raise InputError(
            f"Question {name} has no queries to learn from: make pairs from a finished run of the "
            "methods errr_pairs, errr or rrr, without failed questions."
        )
    if student.context and "pseudo_context" not in trace:
        raise InputError(
            f"Question {name}: the student is to be shown a context, and the run extracted none: "
            "set student.context=False, or make pairs from a run that does."
        )
    found, question = trace["queries"], record["question"]
    context = trace.get("pseudo_context", "")
    texts = found["texts"] if found["parsed"] else []
    return {
        "question_id": name,
        "question": question,
        "context": context,
        # an empty document is the question itself, as `errr` shows it
        "input": student.input(question, context or question),
        "queries": texts,
        "target": write_queries(texts) if texts else None,
        "raw": found["raw"],
        "parseable": found["parsed"],
        "part": part,
    }


def described(path: str | Path) -> Table:
    """How many pairs there are, how many can be learned from, and how long they are, by part."""
    lines = jsonl.read(Path(path))
    shown = Table("part", "questions", "parseable %", "queries", "words of input", "of target")
    for name in ("train", "held_out", "test"):
        if chosen := [line for line in lines if line["part"] == name]:
            shown.add_row(name, str(len(chosen)), *_figures(chosen))
    return shown


def _figures(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    sound = [line for line in lines if line["parseable"]]

    def mean(of: Sequence[Mapping[str, Any]], value: Callable[[Any], float], form: str) -> str:
        if not of:
            return ""
        found = intervals({"one": np.array([value(line) for line in of], float)})["one"]
        return f"{found.mean:{form}} [{found.low:{form}}, {found.high:{form}}]"

    return [
        mean(lines, lambda line: 100 * line["parseable"], ".1f"),
        mean(sound, lambda line: len(line["queries"]), ".2f"),
        mean(lines, lambda line: len(line["input"].split()), ".1f"),
        mean(sound, lambda line: len(line["target"].split()), ".1f"),
    ]


def _write(path: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    with replacing(path) as stream:
        for line in lines:
            stream.write(json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n")
    return path
