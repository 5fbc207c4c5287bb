"""ARC-Challenge: science questions of school exams with choices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.core.jsonl_input import read_input
from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.set_row import SetRow
from jaxrag.types import Question

_ARCHIVE = "https://ai2-public-datasets.s3-us-west-2.amazonaws.com/arc/ARC-V1-Feb2018.zip"


class ArcChallenge(BenchmarkBuilder, skip_registration=True):
    """ARC-Challenge: science questions of school exams with choices.

    Most questions have four choices with the labels A to D; some have 1 to 4, some three or five
    choices. The answer is the text of the right choice. The archive of 681 MB also has the easy
    questions and a corpus, which are not read.
    """

    NAME = "arc_challenge"
    SPLITS: ClassVar = {"train": 1_119, "dev": 299, "test": 1_172}
    EVALUATED = "test"
    TASK = "multiple_choice"
    CORPUS = "psgs_w100"
    FILES: ClassVar = {f"ARC-Challenge-{part}.jsonl": _ARCHIVE for part in ("Train", "Dev", "Test")}
    NEEDS: ClassVar = {split: ((f"ARC-Challenge-{split.title()}.jsonl",),) for split in SPLITS}
    TFDS = "ai2_arc"
    LICENCE = "CC BY-SA 4.0"
    CITATION = (
        "Clark et al., Think you have Solved Question Answering? Try ARC, the AI2 Reasoning "
        "Challenge, 2018"
    )
    SOURCE = "https://allenai.org/data/arc"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions, each with its choices."""
        for line in read_input(files[f"ARC-Challenge-{split.title()}.jsonl"]):
            stem = line.record("question")
            choices = stem.records("choices")
            labels = [choice.string("label") for choice in choices]
            texts = tuple(choice.string("text") for choice in choices)
            key = line.string("answerKey")
            if labels.count(key) != 1:
                raise line.error("answerKey", f"is {key!r}; the labels are {', '.join(labels)}")
            question = Question(
                line.string("id"),
                stem.string("stem"),
                (texts[labels.index(key)],),
                choices=texts,
                task=cls.TASK,
            )
            yield SetRow(question)
