"""The file of pairs that a student is fine-tuned on.

Of each line of pairs.jsonl ``question_id``, ``input``, ``target`` and ``part`` are read: "train",
or "held_out"; lines of the part "test" are left alone. A target of null, where the teacher's text
could not be read, is nothing to learn from: such lines are left out, and their number is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxrag.core import jsonl
from jaxrag.runs.job import locate_file
from jaxrag.training.student.training import TextPair
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")

PAIRS = "pairs.jsonl"
"""What the file is called in a directory."""

FIELDS = ("question_id", "input", "target", "part")
PARTS = ("train", "held_out", "test")


def locate_pairs(spec: str) -> Path:
    """The file, or the file in a directory.

    Raises:
      InputError: there is none.
    """
    made = "experiments.run with configs/errr.py:make_pairs_errr@DATA"
    return locate_file(spec, PAIRS, field="pairs", made=made)


def read_pairs(file: Path) -> tuple[list[TextPair], list[TextPair]]:
    """The pairs to train on, and those held out.

    Raises:
      InputError: naming the line, where a field is missing or of another kind; or one of the two
        parts has no pair, or a question comes twice.
    """
    found: dict[str, list[TextPair]] = {part: [] for part in PARTS}
    lines = jsonl.read(file, key="question_id")
    without = 0
    for number, line in enumerate(lines, 1):
        part = _part(line, f"{file}, line {number}")
        if line["target"] is None:
            without += 1
        else:
            found[part].append(TextPair(line["question_id"], line["input"], line["target"]))
    if without:
        _log.warning("%d of %d lines of %s have no target: left out", without, len(lines), file)
    for part in PARTS[:2]:
        if not found[part]:
            counts = ", ".join(f"{len(some)} of {name!r}" for name, some in found.items())
            raise InputError(
                f"{file} has no pairs of the part {part!r} ({counts}): both are needed, those held "
                "out to tell how well the others are learned."
            )
    return found["train"], found["held_out"]


def _part(line: Mapping[str, Any], where: str) -> str:
    """The part of a line that is as it should be."""
    if lacking := [name for name in FIELDS if name not in line]:
        raise InputError(
            f"{where}: the keys are {', '.join(line)}; {', '.join(lacking)} is missing. A pair has "
            f"{', '.join(FIELDS)}."
        )
    texts = {name: line[name] for name in ("question_id", "input", "part")}
    if line["target"] is not None:
        texts["target"] = line["target"]
    for name, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise InputError(
                f"{where}: {name} is {text!r}; a text that is not empty is wanted."
                + (" (Of a target null says that there is none.)" if name == "target" else "")
            )
    part = line["part"]
    if part not in PARTS:
        raise InputError(f"{where}: part is {line['part']!r}; allowed are {', '.join(PARTS)}.")
    return part
