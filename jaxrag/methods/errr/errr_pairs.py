"""Training data of a query optimizer: the frozen reader, as teacher, writes queries.

From the traces of the method `Config`, or those of ERRR or RRR, the job `MakeQueryPairs` makes
pairs.jsonl. A line has ``question_id``, ``question``, ``context`` (C; "" if none was extracted),
``input`` (of the student), ``queries`` (parsed from the teacher's text ``raw``), ``target`` (the
queries in the student's format, "a; b **"), ``parseable``, and ``part``: "train", "held_out", or
"test" for the test questions of a draw. If the teacher's text could not be parsed, ``queries`` is
empty and ``target`` null, and training skips the line.

Source: docs/methods, "ERRR: frozen and trainable".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from jaxrag.core.checks import check_share
from jaxrag.core.hashing import in_share
from jaxrag.data.draw import Draw
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.significance import interval
from jaxrag.methods.errr import queries
from jaxrag.methods.errr.parsed_queries import write_queries
from jaxrag.methods.errr.queries import StudentInput
from jaxrag.runs.table_job import TableJob
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import NO_ANSWER, Reader, Reply
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings, with our choices for unspecified ones.

    Attributes:
      teacher: how the reader writes queries: as in frozen ERRR, or without C as in frozen RRR.
      student: input of the model to be trained; give the same to the method that uses it.
      held_out: share of the questions, drawn by their ids, that is held out of training, for early
        stopping.
    """

    name = "errr_pairs"

    teacher: queries.Prompted = queries.Prompted()
    student: StudentInput = StudentInput()
    held_out: float = 0.1
    reader: Reader = Reader(prompts="errr")

    def __post_init__(self) -> None:
        check_share(held_out=self.held_out)

    async def answer(self, episode: Episode) -> Reply:
        """Extracts C if teacher or student are shown it, and has the teacher write queries."""
        reads_context = self.teacher.context or self.student.context
        await self.teacher(episode, await episode.pseudo_context() if reads_context else "")
        return NO_ANSWER


@dataclasses.dataclass(frozen=True)
class MakeQueryPairs(TableJob):
    """Writes the pairs of each question's input and queries, pairs.jsonl."""

    file = "pairs.jsonl"
    method = Config

    def lines(self, records: RunRecords, workdir: Path) -> list[dict[str, Any]]:
        """The pair of each question, see `pair_line`."""
        method, data, lines = self.run.method, self.run.data, []
        assert isinstance(method, Config)
        for number, record in enumerate(records.records):
            drawn = data.part_of(number) if isinstance(data, Draw) else "train"
            part = assigned(record["question_id"], drawn, method.held_out)
            lines.append(pair_line(record, method.student, part))
        return lines

    def summary(self, lines: Sequence[Mapping[str, Any]]) -> Table:
        """By part: number of pairs, share that can be learned from, and lengths."""
        table = Table("part", "questions", "parseable %", "queries", "words of input", "of target")
        for name in ("train", "held_out", "test"):
            if chosen := [line for line in lines if line["part"] == name]:
                table.add_row(name, str(len(chosen)), *_figures(chosen))
        return table


def assigned(question_id: str, drawn: str, held_out: float) -> str:
    """The part of a question: "test" if ``drawn`` as such, else "held_out" or "train" by its id."""
    if drawn == "test":
        return drawn
    return "held_out" if in_share(question_id, held_out) else "train"


def pair_line(record: Mapping[str, Any], student: StudentInput, part: str) -> dict[str, Any]:
    """The line of pairs.jsonl that a question's record gives. InputError if the question failed,
    has no queries in its trace, or the student is to be shown a context that was not extracted.
    """
    trace, name = record.get("trace") or {}, record["question_id"]
    if record.get("error") or "queries" not in trace:
        raise InputError(
            f"Question {name} has no queries to learn from: make pairs from a finished run of the "
            "methods errr_pairs, errr or rrr, without failed questions."
        )
    if student.context and "pseudo_context" not in trace:
        raise InputError(
            f"Question {name}: the student reads a context, but the run extracted none: set "
            "student.context=False, or make pairs from a run that does."
        )
    recorded, question = trace["queries"], record["question"]
    context = trace.get("pseudo_context", "")
    texts = recorded["texts"] if recorded["parsed"] else []
    return {
        "question_id": name,
        "question": question,
        "context": context,
        # an empty document is the question itself, as `errr` shows it
        "input": student.text(question, context or question),
        "queries": texts,
        "target": write_queries(texts) if texts else None,
        "raw": recorded["raw"],
        "parseable": recorded["parsed"],
        "part": part,
    }


def _figures(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    sound = [line for line in lines if line["parseable"]]

    def mean(of: Sequence[Mapping[str, Any]], value: Callable[[Any], float], form: str) -> str:
        if not of:
            return ""
        estimate = interval(np.array([value(line) for line in of], float))
        return f"{estimate.mean:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"

    return [
        mean(lines, lambda line: 100 * line["parseable"], ".1f"),
        mean(sound, lambda line: len(line["queries"]), ".2f"),
        mean(lines, lambda line: len(line["input"].split()), ".1f"),
        mean(sound, lambda line: len(line["target"].split()), ".1f"),
    ]
