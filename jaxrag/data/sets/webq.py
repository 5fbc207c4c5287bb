"""WebQuestions: questions that Google suggested, with names from Freebase as answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.core.json_stream import read_elements
from jaxrag.core.jsonl_input import InputLine
from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.formats.dpr import read_dpr_table
from jaxrag.data.set_row import SetRow
from jaxrag.types import Question

_DPR = "https://dl.fbaipublicfiles.com/dpr/data/retriever/"
_CODALAB = "https://worksheets.codalab.org/rest/bundles/"
_LIST = re.compile(r"\(list((?: \(description (?:\"(?:[^\"\\]|\\.)*\"|[^()\"]+)\))*)\)")
_NAME = re.compile(r"\(description (?:\"((?:[^\"\\]|\\.)*)\"|([^()\"]+))\)")


class WebQuestions(BenchmarkBuilder, skip_registration=True):
    """WebQuestions: questions that Google suggested, with names from Freebase as answers.

    Train is whole; DPR and others hold out 361 of its questions. An official answer is a list in
    Lisp's form of several names, each of which is right. Rows have no ids: the id of a question is
    its split and row.
    """

    NAME = "webq"
    SPLITS: ClassVar = {"train": 3_778, "test": 2_032}
    EVALUATED = "test"
    CORPUS = "psgs_w100"
    FILES: ClassVar = {
        "webquestions.examples.train.json": f"{_CODALAB}0x4a763f8cde224c2da592b75f29e2f5c2"
        "/contents/blob/",
        "webquestions.examples.test.json": f"{_CODALAB}0xe7bac352fce7448c9ef238fb0a297ec2"
        "/contents/blob/",
        "webquestions-test.qa.csv": f"{_DPR}webquestions-test.qa.csv",
        "biencoder-webquestions-train.json.gz": f"{_DPR}biencoder-webquestions-train.json.gz",
        "biencoder-webquestions-dev.json.gz": f"{_DPR}biencoder-webquestions-dev.json.gz",
    }
    NEEDS: ClassVar = {
        "train": (("webquestions.examples.train.json",),),
        "test": (("webquestions.examples.test.json",), ("webquestions-test.qa.csv",)),
    }
    OPTIONAL: ClassVar = {
        "train": ("biencoder-webquestions-train.json.gz", "biencoder-webquestions-dev.json.gz")
    }
    FLASHRAG: ClassVar = {split: f"web_questions/{split}.jsonl" for split in SPLITS}
    TFDS = "web_questions"
    LICENCE = "CC BY 4.0; DPR's files CC BY-NC 4.0"
    CITATION = "Berant et al., Semantic Parsing on Freebase from Question-Answer Pairs, EMNLP 2013"
    SOURCE = "https://worksheets.codalab.org/worksheets/0xba659fe363cb46e7a505c5b6a774dc8a"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions of the official JSON, or of DPR's table."""
        path = files.get(f"webquestions.examples.{split}.json")
        if path is None:
            yield from read_dpr_table(files["webquestions-test.qa.csv"], split=split)
            return
        for number, element in enumerate(read_elements(path)):
            question = Question(f"{split}_{number}", element.string("utterance"), _answers(element))
            yield SetRow(question)


def _answers(element: InputLine) -> tuple[str, ...]:
    """The names in ``(list (description "Jaxon Bieber") (description Mexico))``."""
    text = element.string("targetValue")
    if _LIST.fullmatch(text.strip()) is None:
        raise element.error(
            "targetValue", f"is {text[:80]!r}; (list (description NAME) ...) is needed"
        )
    quoted = (found[1] or re.sub(r"\\(.)", r"\1", found[0]) for found in _NAME.findall(text))
    answers = tuple(dict.fromkeys(name for name in map(str.strip, quoted) if name))
    if not answers:
        raise element.error("targetValue", "has no answer")
    return answers
