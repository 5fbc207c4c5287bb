"""BoolQ: yes/no questions of web users, each with a paragraph of Wikipedia."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.core.jsonl_input import InputLine, read_input
from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.dataset import GoldPassage
from jaxrag.data.set_row import OWN, SetRow, context
from jaxrag.types import Question


class BoolQ(BenchmarkBuilder, skip_registration=True):
    """BoolQ. Its paragraph is a question's context and gold passage.

    The published test set of 3,245 questions has no labels and is not read. Rows have no ids: the
    id of a question is its split and row, that of a passage the hash of its title and text, since
    questions share paragraphs.
    """

    NAME = "boolq"
    SPLITS: ClassVar = {"train": 9_427, "dev": 3_270}
    EVALUATED = "dev"
    TASK = "yes_no"
    CORPUS = OWN
    FILES: ClassVar = {
        "boolq/train.jsonl": "https://storage.googleapis.com/boolq/train.jsonl",
        "boolq/dev.jsonl": "https://storage.googleapis.com/boolq/dev.jsonl",
    }
    NEEDS: ClassVar = {split: ((f"boolq/{split}.jsonl",),) for split in SPLITS}
    FLASHRAG: ClassVar = {split: f"boolq/{split}.jsonl" for split in SPLITS}
    TFDS = "bool_q"
    LICENCE = "CC BY-SA 3.0"
    CITATION = (
        "Clark et al., BoolQ: Exploring the Surprising Difficulty of Natural Yes/No Questions, "
        "NAACL 2019"
    )
    SOURCE = "https://github.com/google-research-datasets/boolean-questions"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions, each with its paragraph."""
        for number, line in enumerate(read_input(files[f"boolq/{split}.jsonl"])):
            passage = context(line.string("title", optional=True), line.string("passage"))
            question = Question(
                f"{split}_{number}",
                line.string("question"),
                (_answer(line),),
                task=cls.TASK,
            )
            yield SetRow(question, (GoldPassage(passage.id),), (passage,))


def _answer(line: InputLine) -> str:
    value = line.fields.get("answer")
    if not isinstance(value, bool):
        raise line.error("answer", f"is {value!r}; true or false is needed")
    return "yes" if value else "no"
