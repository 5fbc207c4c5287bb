"""TriviaQA: questions of quiz players, with the aliases of their answers."""

from __future__ import annotations

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
_OFFICIAL = "http://nlp.cs.washington.edu/triviaqa/data/"
_UNFILTERED = f"{_OFFICIAL}triviaqa-unfiltered.tar.gz"
_RC = f"{_OFFICIAL}triviaqa-rc.tar.gz"


class TriviaQA(BenchmarkBuilder, skip_registration=True):
    """TriviaQA: questions of quiz players, with the aliases of their answers.

    The papers' test of 11,313 questions is the development set of the *unfiltered* TriviaQA (the
    official test has no answers); their train and dev are drawn by DPR from the unfiltered training
    set, which is the split train_dev here. The reading-comprehension splits, rc_train and rc_dev,
    count a question once for its web pages and once for its Wikipedia pages, so that their ids
    begin with the file; their pages are not read, nor is the hand-verified part of rc_dev read
    again. All aliases are answers, the main one first. Rows of DPR and FlashRAG have no or other
    ids than the official ones.
    """

    NAME = "triviaqa"
    SPLITS: ClassVar = {
        "train": 78_785,
        "dev": 8_837,
        "test": 11_313,
        "train_dev": 87_622,
        "rc_train": 138_384,
        "rc_dev": 17_944,
    }
    EVALUATED = "test"
    CORPUS = "psgs_w100"
    FILES: ClassVar = {
        **{
            f"trivia-{s}.qa.csv.gz": f"{_DPR}trivia-{s}.qa.csv.gz" for s in ("train", "dev", "test")
        },
        "unfiltered-web-train.json": _UNFILTERED,
        "unfiltered-web-dev.json": _UNFILTERED,
        **{f"{pages}-{s}.json": _RC for s in ("train", "dev") for pages in ("web", "wikipedia")},
        "biencoder-trivia-train.json.gz": f"{_DPR}biencoder-trivia-train.json.gz",
        "biencoder-trivia-dev.json.gz": f"{_DPR}biencoder-trivia-dev.json.gz",
    }
    NEEDS: ClassVar = {
        "train": (("trivia-train.qa.csv.gz",),),
        "dev": (("trivia-dev.qa.csv.gz",),),
        "test": (("trivia-test.qa.csv.gz",), ("unfiltered-web-dev.json",)),
        "train_dev": (("unfiltered-web-train.json",),),
        "rc_train": (("web-train.json", "wikipedia-train.json"),),
        "rc_dev": (("web-dev.json", "wikipedia-dev.json"),),
    }
    OPTIONAL: ClassVar = {
        "train": ("biencoder-trivia-train.json.gz",),
        "dev": ("biencoder-trivia-dev.json.gz",),
    }
    EXTRA = ("train_dev", "rc_train", "rc_dev")
    FLASHRAG: ClassVar = {split: f"triviaqa/{split}.jsonl" for split in ("train", "dev", "test")}
    TFDS = "trivia_qa"
    LICENCE = "no claim to the questions (University of Washington); DPR's files CC BY-NC 4.0"
    CITATION = "Joshi et al., TriviaQA, ACL 2017"
    SOURCE = "http://nlp.cs.washington.edu/triviaqa/"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions of DPR's table, or of the official JSON."""
        path = files.get(f"trivia-{split}.qa.csv.gz")
        if path is not None:
            yield from read_dpr_table(path, split=split)
            return
        for name in cls.NEEDS[split][-1]:
            prefix = f"{name.removesuffix('.json')}_" if split.startswith("rc_") else ""
            for element in read_elements(files[name], field="Data"):
                yield SetRow(_question(element, prefix))


def _question(element: InputLine, prefix: str) -> Question:
    answer = element.record("Answer")
    aliases = (answer.string("Value"), *answer.strings("Aliases", optional=True))
    return Question(
        prefix + element.string("QuestionId"),
        element.string("Question").strip(),
        tuple(dict.fromkeys(alias.strip() for alias in aliases)),
    )
