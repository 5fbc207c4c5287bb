"""PopQA: questions about entities of all popularities, made from Wikidata by templates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.core.jsonl_input import InputLine, read_input
from jaxrag.core.tables import read_table
from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.set_row import SetRow
from jaxrag.types import Question

_TABLE, _LONG_TAIL = "popQA.tsv", "popqa_longtail_w_gs.jsonl"
_RARE = 100  # views of the subject's page a month


class PopQA(BenchmarkBuilder, skip_registration=True):
    """PopQA. There is one published split, "test".

    "longtail" is Self-RAG's part: the questions whose subject's page has fewer than 100 views a
    month (``s_pop``), 1,399 of them. Seven texts occur twice, with different subjects and answers;
    both questions are kept. ERRR evaluates the first 997 (`Benchmark.first`).
    """

    NAME = "popqa"
    SPLITS: ClassVar = {"test": 14_267, "longtail": 1_399}
    EVALUATED = "test"
    CORPUS = "psgs_w100"
    FILES: ClassVar = {
        _TABLE: "https://raw.githubusercontent.com/AlexTMallen/adaptive-retrieval/main/data/"
        "popQA.tsv",
        _LONG_TAIL: "",
    }
    NEEDS: ClassVar = {
        "test": ((_TABLE,),),
        "longtail": ((_TABLE,), (_LONG_TAIL,)),
    }
    FLASHRAG: ClassVar = {"test": "popqa/test.jsonl"}
    LICENCE = "MIT"
    CITATION = (
        "Mallen et al., When Not to Trust Language Models: Investigating Effectiveness of "
        "Parametric and Non-Parametric Memories, ACL 2023"
    )
    SOURCE = "https://github.com/AlexTMallen/adaptive-retrieval"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions, from the authors' table or Self-RAG's JSONL."""
        ((name, path),) = files.items()
        rows = read_table(path, quoted=True) if name == _TABLE else read_input(path)
        for row in rows:
            if split == "longtail" and name == _TABLE and row.integer("s_pop") >= _RARE:
                continue
            yield SetRow(Question(row.identifier("id"), row.string("question"), _answers(row)))


def _answers(row: InputLine) -> tuple[str, ...]:
    """The answers in ``possible_answers``: a list of strings as JSON in a cell."""
    field = "possible_answers"
    cell = row.string(field)
    try:
        answers = json.loads(cell)
    except ValueError:
        raise row.error(field, f"is {cell[:60]!r}; a JSON list is needed") from None
    return tuple(dict.fromkeys(row._replace(fields={field: answers}).strings(field)))
