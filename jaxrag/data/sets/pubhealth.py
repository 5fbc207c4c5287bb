"""PubHealth: claims about public health that fact checkers verified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.core.jsonl_input import read_input
from jaxrag.core.tables import read_table
from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.question_kinds import VERDICTS
from jaxrag.data.set_row import SetRow
from jaxrag.types import Question

_SELF_RAG = "health_claims_processed.jsonl"
_FEVER = {"supports": "true", "refutes": "false"}


class PubHealth(BenchmarkBuilder, skip_registration=True):
    """PubHealth in Self-RAG's form: the claims whose label is true or false, 987 in the test split.

    Claims labelled mixture or unproven, and the few rows without one of the four labels, are left
    out. Rows of the tables are quoted as in CSV, with line ends inside cells; some are damaged, and
    are left out with a warning. The sizes of the
    training and dev splits are the true and false claims that the authors' paper counts; mirrors
    have a few rows more or fewer, which the build says. A claim's id is its split and row in the
    file, from 0, since the tables' ids repeat.
    """

    NAME = "pubhealth"
    SPLITS: ClassVar = {"train": 8_079, "dev": 1_009, "test": 987}
    EVALUATED = "test"
    TASK = "fact_checking"
    CORPUS = "psgs_w100"
    FILES: ClassVar = {
        "pubhealth/train.tsv": "",
        "pubhealth/dev.tsv": "",
        "pubhealth/test.tsv": "",
        _SELF_RAG: "",
    }
    NEEDS: ClassVar = {
        "train": (("pubhealth/train.tsv",),),
        "dev": (("pubhealth/dev.tsv",),),
        "test": (("pubhealth/test.tsv",), (_SELF_RAG,)),
    }
    LICENCE = "MIT (of the authors' repository)"
    CITATION = (
        "Kotonya and Toni, Explainable Automated Fact-Checking for Public Health Claims, EMNLP 2020"
    )
    SOURCE = "https://github.com/neemakot/Health-Fact-Checking"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The claims, from the authors' tables or Self-RAG's JSONL."""
        ((name, path),) = files.items()
        rows = _self_rag(path) if name == _SELF_RAG else _table(path)
        for number, (claim, label) in enumerate(rows):
            if label in VERDICTS:
                yield SetRow(Question(f"{split}_{number}", claim, (label,), task=cls.TASK))


def _table(path: Path) -> Iterator[tuple[str, str]]:
    """Claims and labels of a table."""
    for row in read_table(path, quoted=True, ragged=True):
        label = row.string("label", optional="label" in row.fields).strip().lower()
        yield row.string("claim", optional=label not in VERDICTS), label


def _self_rag(path: Path) -> Iterator[tuple[str, str]]:
    """Claims and labels of Self-RAG's file: ``answers``, or FEVER's words in ``label``."""
    for line in read_input(path):
        claim = line.string("question" if "question" in line.fields else "claim")
        answered = "answers" in line.fields or "label" not in line.fields
        found = line.strings("answers") if answered else (line.string("label"),)
        labels = {_FEVER.get(one.lower(), one.lower()) for one in found}
        if len(labels) != 1 or not labels <= {*VERDICTS}:
            field = "answers" if answered else "label"
            raise line.error(field, f"is {list(found)}; true or false is needed")
        yield claim, labels.pop()
