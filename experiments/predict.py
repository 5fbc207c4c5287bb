"""Answers questions that have no gold answers, and writes the answers to a file.

    jaxrag predict --config configs/dtr.py:dtr --questions questions.txt --out answers.jsonl

``--questions`` is a file of lines, a .csv with a column ``question``, or a .jsonl with ``question``
and optionally ``id``. Each line of the result has ``id``, ``question`` and ``answer`` (or
``error``). The passages are those of the config's data. The answers are kept in a run directory,
by default beside the file, from which the same command goes on after an interruption; ``jaxrag
explain`` shows how each was found.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

from jaxrag.core import jsonl
from jaxrag.data.documents import QuestionFile
from jaxrag.evaluation.records import read_run
from jaxrag.experiments.configuration import parse, script
from jaxrag.runs.run import Run, execute
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Answers the questions and writes the file."""
    run, values = parse(argv, "predict", kind=Run)
    if not values.questions or not values.out:
        raise InputError("give --questions=FILE and --out=FILE.jsonl")
    out = Path(values.out)
    work = Path(values.workdir or out.parent / f"{out.stem}.run")
    if out.is_dir() or out == work or (out.exists() and out.samefile(values.questions)):
        raise InputError(f"--out={out} is a directory, or a file that is read: name another.")
    data = QuestionFile(values.questions, run.data)
    limit = run.limit if any(arg.startswith("--config.limit") for arg in argv) else 0
    errors = execute(dataclasses.replace(run, data=data, limit=limit), work)["errors"]
    lines = []
    for row in read_run(work).records:
        fields = {"error": row["error"]} if "error" in row else {"answer": row["prediction"]}
        lines.append({"id": row["question_id"], "question": row["question"], **fields})
    jsonl.write(out, lines)
    print(f"wrote {len(lines):,} answers to {out}, {errors} of them errors")
    print(f"next: jaxrag explain {shlex.join([str(work), lines[0]['id']])}")
    return 1 if errors else 0


if __name__ == "__main__":
    script(main)
