"""SQuAD 1.1: questions about paragraphs of Wikipedia, whose answers are spans of them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.core.json_stream import read_elements
from jaxrag.core.jsonl_input import InputLine
from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.dataset import GoldPassage
from jaxrag.data.formats.dpr import read_dpr_table
from jaxrag.data.set_row import SetRow, context
from jaxrag.types import Question

_DPR = "https://dl.fbaipublicfiles.com/dpr/data/retriever/"
_OFFICIAL = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"


class Squad(BenchmarkBuilder, skip_registration=True):
    """SQuAD 1.1: questions about paragraphs of Wikipedia, whose answers are spans of them.

    Papers search all of Wikipedia for its dev questions; the paragraphs are the set's contexts, and
    each is its questions' gold passage. Many questions ("What did he do next?") cannot be
    understood without their paragraph. Titles are given as Wikipedia shows them (the published ones
    have underscores and percent signs). SQuAD 2.0 is another set, which is refused. Passages of
    psgs_w100 are gold only for train, and only with DPR's training files.
    """

    NAME = "squad"
    SPLITS: ClassVar = {"train": 87_599, "dev": 10_570}
    EVALUATED = "dev"
    CORPUS = "psgs_w100"
    FILES: ClassVar = {
        "train-v1.1.json": f"{_OFFICIAL}train-v1.1.json",
        "dev-v1.1.json": f"{_OFFICIAL}dev-v1.1.json",
        "squad1-test.qa.csv": f"{_DPR}squad1-test.qa.csv",
        "biencoder-squad1-train.json.gz": f"{_DPR}biencoder-squad1-train.json.gz",
        "biencoder-squad1-dev.json.gz": f"{_DPR}biencoder-squad1-dev.json.gz",
    }
    NEEDS: ClassVar = {
        "train": (("train-v1.1.json",),),
        "dev": (("dev-v1.1.json",), ("squad1-test.qa.csv",)),
    }
    OPTIONAL: ClassVar = {
        "train": ("biencoder-squad1-train.json.gz", "biencoder-squad1-dev.json.gz")
    }
    FLASHRAG: ClassVar = {split: f"squad/{split}.jsonl" for split in SPLITS}
    TFDS = "squad"
    LICENCE = "CC BY-SA 4.0; DPR's files CC BY-NC 4.0"
    CITATION = (
        "Rajpurkar et al., SQuAD: 100,000+ Questions for Machine Comprehension of Text, EMNLP 2016"
    )
    SOURCE = "https://rajpurkar.github.io/SQuAD-explorer/"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions of the official JSON with their paragraphs, or of DPR's table."""
        path = files.get(f"{split}-v1.1.json")
        if path is None:
            yield from read_dpr_table(files["squad1-test.qa.csv"], split=split)
            return
        for article in read_elements(path, field="data"):
            title = urllib.parse.unquote(article.string("title")).replace("_", " ")
            for paragraph in article.records("paragraphs"):
                passage = context(title, paragraph.string("context"))
                for one in paragraph.records("qas"):
                    yield SetRow(_question(one), (GoldPassage(passage.id),), (passage,))


def _question(one: InputLine) -> Question:
    if "is_impossible" in one.fields:
        raise one.error("is_impossible", "is of SQuAD 2.0; a file of SQuAD 1.1 is needed")
    answers = (answer.string("text") for answer in one.records("answers"))
    return Question(one.string("id"), one.string("question"), tuple(dict.fromkeys(answers)))
