"""DPR's forms: tables of questions and answers, and JSON with passages for training.

Source: Karpukhin et al., Dense Passage Retrieval, EMNLP 2020,
https://github.com/facebookresearch/DPR.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from jaxrag.core.file_states import FileState
from jaxrag.core.hashing import digest
from jaxrag.core.json_stream import read_elements
from jaxrag.core.jsonl_input import InputLine, well_named, written_list
from jaxrag.core.tables import read_table
from jaxrag.data.dataset import GoldPassage, SetRow
from jaxrag.text.answers import normalize
from jaxrag.types import Passage, Question

_log = logging.getLogger("jaxrag")

CORPUS = "psgs_w100"
"""Name of the corpus of DPR's passages."""

_CONTEXTS = ("positive_ctxs", "negative_ctxs", "hard_negative_ctxs")


def read_dpr_table(path: Path, *, split: str) -> Iterator[SetRow]:
    """The questions of a table such as nq-test.qa.csv: question, tab, Python's list of answers.

    Cells are quoted as in CSV: a cell with quotes is in quotes, and those inside are doubled. There
    are no ids: the id of a question is its split and row, from 0. InputError for other rows.
    """
    rows = read_table(path, columns=("question", "answers"), quoted=True)
    for number, row in enumerate(rows):
        question = Question(f"{split}_{number}", row.string("question"), answer_list(row))
        yield SetRow(question)


def answer_list(row: InputLine) -> tuple[str, ...]:
    """The answers in a cell that holds a list of strings as Python writes it; else InputError."""
    cell = row.string("answers")
    answers = written_list(cell)
    if answers is None:
        shown = cell if len(cell) <= 60 else f"{cell[:60]}..."
        raise row.error("answers", f"is {shown!r}; a list of strings as Python writes it is needed")
    return row._replace(fields={"answers": answers}).answers("answers")


def read_dpr_training(path: Path, *, split: str) -> Iterator[SetRow]:
    """The questions of a JSON file such as biencoder-nq-train.json, in the memory of one question.

    The gold passage, of the contexts and of `CORPUS`, is the first of ``positive_ctxs``, as in
    `with_dpr_gold`. All of them, ``negative_ctxs`` and ``hard_negative_ctxs`` are contexts. Ids of
    questions are as in `read_dpr_table`. InputError for other elements.
    """
    elements = well_named(read_elements(path), "answers", *_CONTEXTS)
    for number, element in enumerate(elements):
        answers = element.answers("answers", optional=True)
        positive, *others = (
            [_passage(one) for one in element.records(field, optional=True)] for field in _CONTEXTS
        )
        gold = [GoldPassage(positive[0].id, corpus) for corpus in ("", CORPUS) if positive]
        yield SetRow(
            Question(f"{split}_{number}", element.string("question"), answers),
            tuple(gold),
            tuple(dict.fromkeys(chain(positive, *others))),
        )


def with_dpr_gold(rows: Iterator[SetRow], files: Iterable[Path]) -> Iterator[SetRow]:
    """The questions with the gold passages that DPR's training files have for them.

    Questions are matched by their normalised texts. A question's gold passage is the first of
    ``positive_ctxs``, on which DPR is trained: the annotated one of NQ, else the passage with the
    answer that BM25 ranks first. Memory: about 150 bytes for each question of the files.
    """
    gold = _first_positives(tuple(FileState.of(path) for path in files))
    for row in rows:
        found = gold.get(_key(row.question.text))
        yield row._replace(gold=(*row.gold, found)) if found else row


@functools.lru_cache(maxsize=8)  # a build reads the rows of a split several times
def _first_positives(files: tuple[FileState, ...]) -> Mapping[str, GoldPassage]:
    """The gold passage of each question."""
    gold: dict[str, GoldPassage] = {}
    for file in files:
        _log.warning("reading gold passages of %s (%.0f MB)", file.path, file.bytes / 1e6)
        for element in read_elements(Path(file.path)):
            positive = element.records(_CONTEXTS[0], optional=True)
            if positive:
                name = _passage(positive[0]).id
                gold[_key(element.string("question"))] = GoldPassage(name, CORPUS)
    return gold


def _key(question: str) -> str:
    return digest(normalize(question))[:16]


def _passage(context: InputLine) -> Passage:
    """A passage with DPR's id, which is ``passage_id`` for NQ and ``psg_id`` for other sets."""
    field = "passage_id" if "passage_id" in context.fields else "psg_id"
    return Passage(
        context.identifier(field), context.string("title", optional=True), context.string("text")
    )
