"""Answers of other systems to the questions of a run, as the records of another run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxrag.core.json_text import parse_json
from jaxrag.core.jsonl_input import read_input
from jaxrag.core.progress import tell
from jaxrag.core.tables import read_table
from jaxrag.evaluation.records import RunRecords
from jaxrag.text.model_output import parse_answer
from jaxrag.text.sentences import word_key
from jaxrag.types import InputError

FIELDS = ("pred", "prediction", "response", "output", "answer")
"""Names of the answer's field, the first there ("answer" may be gold); also within ``output``."""


def read_answers(file: Path, like: RunRecords) -> RunRecords:
    """The answers of a file to the questions of a run, with the run's gold answers.

    The file is a JSON list (FlashRAG's intermediate_data.json is one), JSONL or CSV; each entry has
    ``question`` and one of `FIELDS`. Of a text with <answer> tags, as Search-R1's model writes
    them, the last answer counts; of another, what follows its reasoning. Questions are the same if
    their words are; one with several answers is left out. InputError if the file is damaged, an
    entry has no question or answer, or the run has none of the questions.
    """
    answers, several = dict[str, str](), set[str]()
    for question, answer in _entries(file):
        if answers.setdefault(word_key(question), answer) != answer:
            several.add(word_key(question))
    if several:
        tell(f"{file}: {len(several):,} questions have several answers there, and are left out")
    answers = {key: answer for key, answer in answers.items() if key not in several}
    fields = ("question_id", "question", "gold_answers", "gold_passages", "normalization")
    records = tuple(
        {name: record[name] for name in fields if name in record}
        | {"prediction": answers[word_key(record["question"])]}
        for record in like.records
        if word_key(record["question"]) in answers
    )
    if not records:
        raise InputError(f"{file} answers none of the questions of {like.path}.")
    if len(records) < max(len(answers), len(like.records)):
        tell(f"{file}: {len(records):,} of {len(like.records):,} questions have an answer there")
    config = {"method": {"name": file.stem}, "dataset": like.config.get("dataset", {})}
    return RunRecords(file, config, [], records, {}, True)


def _entries(file: Path) -> list[tuple[str, str]]:
    """Question and answer of each entry."""
    if file.suffix == ".json":
        try:
            rows = parse_json(file.read_bytes())
        except ValueError as error:
            raise InputError(f"{file} is not JSON ({error}).") from None
    else:
        table = file.suffix == ".csv"
        lines = read_table(file, separator=",", quoted=True) if table else read_input(file)
        rows = [line.fields for line in lines]
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"{file} is not a list of objects with a question and an answer.")
    return [_entry(row, f"{file}, entry {number}") for number, row in enumerate(rows, 1)]


def _entry(row: Mapping[str, Any], where: str) -> tuple[str, str]:
    inner = row.get("output")
    places = (inner, row) if isinstance(inner, Mapping) else (row,)
    texts = [place[name] for place in places for name in FIELDS if name in place]
    answer = next((text for text in texts if isinstance(text, str)), None)
    if not isinstance(row.get("question"), str) or answer is None:
        raise InputError(
            f"{where} lacks a field question, or an answer in one of {', '.join(FIELDS)}; it has "
            f"{', '.join(map(str, row)) or 'nothing'}."
        )
    before, closed, _ = answer.rpartition("</answer>")
    _, opened, tagged = before.rpartition("<answer>")
    return row["question"], tagged.strip() if opened and closed else parse_answer(answer, "text")
