"""StrategyQA: yes/no questions whose steps of reasoning are not in the question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from jaxrag.core.json_stream import read_elements, read_entries
from jaxrag.core.jsonl_input import InputLine, type_name
from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.dataset import GoldPassage
from jaxrag.data.set_row import OWN, SetRow
from jaxrag.types import Passage, Question

_DATA = "https://storage.googleapis.com/ai2i/strategyqa/data/strategyqa_dataset.zip"
_QUESTIONS, _PARAGRAPHS = "strategyqa_train.json", "strategyqa_train_paragraphs.json"
_NO_PARAGRAPH = ("operation", "no_evidence")


class StrategyQA(BenchmarkBuilder, skip_registration=True):
    """StrategyQA. Only the training split has published answers.

    Three annotators chose evidence for each step; the gold passages and contexts of a question are
    the paragraphs that any of them chose, in that order. Steps marked "operation" or "no_evidence"
    have none, and so have some questions. All paragraphs are held in memory (9,251, some 10 MB).
    ARS-RAG draws 1,600 and 400 questions (`jaxrag.data.draw`).
    """

    NAME = "strategyqa"
    SPLITS: ClassVar = {"train": 2_290}
    EVALUATED = "train"
    TASK = "yes_no"
    CORPUS = OWN
    FILES: ClassVar = {_QUESTIONS: _DATA, _PARAGRAPHS: _DATA}
    NEEDS: ClassVar = {"train": ((_QUESTIONS, _PARAGRAPHS),)}
    LICENCE = "MIT (of the authors' repository; none is stated for the data)"
    CITATION = (
        "Geva et al., Did Aristotle Use a Laptop? A Question Answering Benchmark with Implicit "
        "Reasoning Strategies, TACL 2021"
    )
    SOURCE = "https://allenai.org/data/strategyqa"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions with the paragraphs of their evidence."""
        paragraphs = {
            name: Passage(name, entry.string("title"), entry.string("content"))
            for name, entry in read_entries(files[_PARAGRAPHS])
        }
        for element in read_elements(files[_QUESTIONS]):
            names = dict.fromkeys(_evidence(element, element.items("evidence", optional=True)))
            missing = next((name for name in names if name not in paragraphs), None)
            if missing is not None:
                raise element.error(
                    "evidence", f"names {missing!r}, which {files[_PARAGRAPHS]} does not have"
                )
            answers = ("yes" if element.boolean("answer") else "no",)
            text = element.string("question")
            yield SetRow(
                Question(element.string("qid"), text, answers, task=cls.TASK),
                tuple(map(GoldPassage, names)),
                tuple(paragraphs[name] for name in names),
            )


def _evidence(element: InputLine, found: list[Any]) -> Iterator[str]:
    """Names of paragraphs in lists of lists: annotators, steps, choices."""
    for item in found:
        if isinstance(item, list):
            yield from _evidence(element, item)
        elif not isinstance(item, str):
            raise element.error("evidence", f"has {type_name(item)} where a name is needed")
        elif item not in _NO_PARAGRAPH:
            yield item
