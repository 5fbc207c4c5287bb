"""AmbigQA (AmbigNQ): questions of Natural Questions with the answers to all their readings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.core.json_stream import read_elements
from jaxrag.core.jsonl_input import InputLine
from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.set_row import SetRow
from jaxrag.types import Question

_LIGHT = "https://nlp.cs.washington.edu/ambigqa/data/ambignq_light.zip"
_FULL = "https://nlp.cs.washington.edu/ambigqa/data/ambignq.zip"


class AmbigQA(BenchmarkBuilder, skip_registration=True):
    """AmbigQA with one question for all readings.

    An annotation is a single answer with its aliases or a list of disambiguated questions, each
    with answers. The answers kept are those of all annotations and all readings: the question is
    asked as it stands, and an answer to any reading that an annotator found is right. The light and
    the full files have the same questions. ERRR evaluates the first 1,000 of the dev split
    (`Benchmark.first`); test answers are not published.
    """

    NAME = "ambigqa"
    SPLITS: ClassVar = {"train": 10_036, "dev": 2_002}
    EVALUATED = "dev"
    CORPUS = "psgs_w100"
    FILES: ClassVar = {
        "train_light.json": _LIGHT,
        "dev_light.json": _LIGHT,
        "train.json": _FULL,
        "dev.json": _FULL,
    }
    NEEDS: ClassVar = {split: ((f"{split}_light.json",), (f"{split}.json",)) for split in SPLITS}
    FLASHRAG: ClassVar = {split: f"ambig_qa/{split}.jsonl" for split in SPLITS}
    LICENCE = "CC BY-SA 3.0"
    CITATION = "Min et al., AmbigQA: Answering Ambiguous Open-domain Questions, EMNLP 2020"
    SOURCE = "https://nlp.cs.washington.edu/ambigqa"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions with the answers of all annotations."""
        (path,) = files.values()
        for element in read_elements(path):
            answers = [one for part in element.records("annotations") for one in _answers(part)]
            text = element.string("question")
            yield SetRow(Question(element.identifier("id"), text, tuple(dict.fromkeys(answers))))


def _answers(annotation: InputLine) -> Iterator[str]:
    kind = annotation.string("type")
    if kind == "singleAnswer":
        yield from annotation.strings("answer")
    elif kind == "multipleQAs":
        for reading in annotation.records("qaPairs"):
            yield from reading.strings("answer")
    else:
        raise annotation.error("type", f"is {kind!r}; singleAnswer or multipleQAs is needed")
