"""Sets that are published in forms of their own; in FlashRAG's copies passages or choices lack.

A reader gets the paths of a split's files in the order of `jaxrag.data.sets.PublishedSet.files`,
which may be packed; an InputError names file, row and field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jaxrag.core.json_stream import read_elements
from jaxrag.core.json_text import parse_json
from jaxrag.core.jsonl_input import InputLine, read_input, type_name
from jaxrag.core.packed_files import open_packed
from jaxrag.core.tables import read_table
from jaxrag.data.dataset import GoldPassage, SetRow, context
from jaxrag.data.formats.hotpot import read_hotpot
from jaxrag.data.formats.judgements import read_queries, read_trec_judgements
from jaxrag.data.question_kinds import VERDICTS
from jaxrag.types import InputError, Passage, Question

_BATCH = 1024  # rows of a parquet file decoded at a time
_MOST_BYTES = 100_000_000  # of the file of paragraphs, which has some 10 MB
_OPTIONS = ("opa", "opb", "opc", "opd")
_EXPLAINED = re.compile(
    r"^\W*ans(?:wer)?\b[\s.:;\-(]*(?:is\b)?[\s.:;\-('\"]*([a-d])\b", re.IGNORECASE
)
"""How many explanations begin: "Ans. (b)", "Ans is 'c'", "Answer: D"."""


def read_2wiki(paths: Sequence[Path], split: str) -> Iterator[SetRow]:
    """2WikiMultiHopQA: the questions and the other names of answers, by Wikidata id.

    Answers are followed by their aliases and demonyms, as in the authors' evaluation. A passage's
    id is its title. Test has no answers; it is read for its paragraphs.
    """
    questions, names = paths
    fields = ("aliases", "demonyms")
    aliases = {
        line.string("Q_id"): [one for name in fields for one in line.strings(name, optional=True)]
        for line in read_input(names)
    }
    return read_hotpot(questions, title_ids=True, aliases=aliases, answered=split != "test")


def read_arc(paths: Sequence[Path], split: str) -> Iterator[SetRow]:
    """ARC: three to five choices, with the labels A to E or 1 to 5."""
    for line in read_input(paths[0]):
        stem = line.record("question")
        choices = stem.records("choices")
        labels = [choice.string("label") for choice in choices]
        texts = tuple(choice.string("text") for choice in choices)
        key = line.string("answerKey")
        if labels.count(key) != 1:
            raise line.error("answerKey", f"is {key!r}; the labels are {', '.join(labels)}")
        answers = (texts[labels.index(key)],)
        name, text = line.string("id"), stem.string("stem")
        yield SetRow(Question(name, text, answers, texts, task="multiple_choice"))


def read_parquet(path: Path) -> Iterator[InputLine]:
    """The rows of a file, in order, with values as in JSON; InputError for damage."""
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                for fields in batch.to_pylist():
                    number += 1
                    yield InputLine(path, number, fields, "row")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: not a parquet file, or damaged after row {number} ({error}); get it again"
        ) from None


def read_medmcqa(paths: Sequence[Path], split: str) -> Iterator[SetRow]:
    """MedMCQA's parquet files: the explanation (``exp``) is a question's context and gold passage.

    The number of the right option (``cop``) counts from 0; other copies count from 1. A file whose
    explanations name the letters ("Ans. (b)") of a count from 1 more often is refused.
    """
    agreeing = [0, 0]  # from 0, from 1
    for row in read_parquet(paths[0]):
        choices = tuple(row.string(option, optional=True) for option in _OPTIONS)
        cop, explanation = row.integer("cop"), row.string("exp", optional=True)
        if not 0 <= cop < len(_OPTIONS):
            raise row.error("cop", f"is {cop}; it must be the number of an option, from 0 to 3")
        if not choices[cop].strip():
            raise row.error("cop", f"is {cop}, whose option is blank")
        if match := _EXPLAINED.match(explanation):
            for base in (0, 1):
                agreeing[base] += cop - base == "abcd".index(match[1].lower())
        name, text = row.string("id"), row.string("question")
        question = Question(name, text, (choices[cop],), choices, task="multiple_choice")
        title = row.string("subject_name", optional=True)
        passages = (context(title, explanation),) if explanation.strip() else ()
        yield SetRow(question, tuple(GoldPassage(passage.id) for passage in passages), passages)
    if agreeing[1] > agreeing[0]:
        raise InputError(
            f"{paths[0]}: of the letters that explanations name, {agreeing[0]} agree with 'cop' "
            f"counted from 0 and {agreeing[1]} from 1: get the copy that counts from 0"
        )


def read_pubhealth(paths: Sequence[Path], split: str) -> Iterator[SetRow]:
    """PubHealth's claims that are true or false, by their rows from 0.

    Claims labelled mixture or unproven are left out, and damaged rows, with a warning.
    """
    for number, row in enumerate(read_table(paths[0], quoted=True, ragged=True)):
        label = row.string("label", optional="label" in row.fields).strip().lower()
        if label in VERDICTS:
            claim = row.string("claim")
            yield SetRow(Question(f"{split}_{number}", claim, (label,), task="fact_checking"))


def read_msmarco(paths: Sequence[Path], split: str) -> Iterator[SetRow]:
    """MS MARCO's judged queries, in the order of their table; they have no answers."""
    queries, judged = paths
    return read_queries(queries, read_trec_judgements(judged, corpus="msmarco"), judged)


def read_strategyqa(paths: Sequence[Path], split: str) -> Iterator[SetRow]:
    """StrategyQA: the questions and their paragraphs, all held in memory (9,251, some 10 MB).

    The gold passages and contexts of a question are the paragraphs that any of three annotators
    chose for any step, in that order; steps marked "operation" or "no_evidence" have none.
    """
    questions, file = paths
    paragraphs = _paragraphs(file)
    for element in read_elements(questions):
        names = dict.fromkeys(_evidence(element, element.items("evidence", optional=True)))
        missing = next((name for name in names if name not in paragraphs), None)
        if missing is not None:
            raise element.error("evidence", f"names {missing!r}, which {file} does not have")
        answers = ("yes" if element.boolean("answer") else "no",)
        name, text = element.string("qid"), element.string("question")
        yield SetRow(
            Question(name, text, answers, task="yes_no"),
            tuple(map(GoldPassage, names)),
            tuple(paragraphs[name] for name in names),
        )


def _paragraphs(file: Path) -> dict[str, Passage]:
    with open_packed(file) as stream:
        data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InputError(f"{file} has over {_MOST_BYTES / 1e6:.0f} MB: it is another file")
        try:
            document = InputLine(file, 1, dict(parse_json(data)), "object")
        except (ValueError, TypeError) as error:
            raise InputError(f"{file}: not one JSON object ({error}); get it again") from None
    entries = {name: document.record(name) for name in document.fields}
    return {
        name: Passage(name, entry.string("title"), entry.string("content"))
        for name, entry in entries.items()
    }


def _evidence(element: InputLine, items: list[Any]) -> Iterator[str]:
    """Names of paragraphs in lists of lists: annotators, steps, choices."""
    for item in items:
        if isinstance(item, list):
            yield from _evidence(element, item)
        elif not isinstance(item, str):
            raise element.error("evidence", f"has {type_name(item)} where a name is needed")
        elif item not in ("operation", "no_evidence"):
            yield item
