"""MedMCQA: questions of Indian medical entrance examinations with four options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.core.jsonl_input import InputLine, read_input
from jaxrag.core.parquet_input import read_parquet
from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.dataset import GoldPassage
from jaxrag.data.set_row import OTHERS, SetRow, context
from jaxrag.types import InputError, Question

_MIRROR = "https://huggingface.co/datasets/openlifescienceai/medmcqa/resolve/main/data"
_TRAIN, _DEV = "medmcqa/train-00000-of-00001.parquet", "medmcqa/validation-00000-of-00001.parquet"
_OPTIONS = ("opa", "opb", "opc", "opd")
_EXPLAINED = re.compile(
    r"^\W*ans(?:wer)?\b[\s.:;\-(]*(?:is\b)?[\s.:;\-('\"]*([a-d])\b", re.IGNORECASE
)
"""How many explanations begin: "Ans. (b)", "Ans is 'c'", "Answer: D"."""


class MedMCQA(BenchmarkBuilder, skip_registration=True):
    """MedMCQA. The explanation (``exp``) of a question is its context and gold passage.

    The number of the right option (``cop``) counts from 1 in the authors' JSON lines and from 0 in
    the parquet mirror. Which it is is decided by the whole file (a 0 or a 4 occurs) and checked
    against the explanations that name the letter ("Ans. (b)"): fewer of them may agree with the
    chosen count than with the other, or the file is refused. The explanation tells the answer, so
    a question does not find its own; with `Benchmark.corpus` "contexts" it does. Test answers are
    not published. ARS-RAG draws 1,600 and 400 questions (`jaxrag.data.draw`).
    """

    NAME = "medmcqa"
    SPLITS: ClassVar = {"train": 182_822, "dev": 4_183}
    EVALUATED = "dev"
    TASK = "multiple_choice"
    CORPUS = OTHERS
    FILES: ClassVar = {
        _TRAIN: f"{_MIRROR}/train-00000-of-00001.parquet",
        _DEV: f"{_MIRROR}/validation-00000-of-00001.parquet",
        "medmcqa/train.json": "",
        "medmcqa/dev.json": "",
    }
    NEEDS: ClassVar = {
        "train": ((_TRAIN,), ("medmcqa/train.json",)),
        "dev": ((_DEV,), ("medmcqa/dev.json",)),
    }
    LICENCE = "Apache 2.0 (of the parquet mirror) or MIT (of the authors' repository)"
    CITATION = (
        "Pal et al., MedMCQA: A Large-scale Multi-Subject Multi-Choice Dataset for Medical domain "
        "Question Answering, CHIL 2022"
    )
    SOURCE = "https://medmcqa.github.io"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions, from the authors' JSON lines or the parquet mirror; reads a file twice."""
        ((name, path),) = files.items()
        read = read_parquet if name.endswith(".parquet") else read_input
        base = _base(path, read)
        for row in read(path):
            choices = tuple(row.string(option, optional=True) for option in _OPTIONS)
            answer = choices[row.integer("cop") - base]
            if not answer.strip():
                raise row.error("cop", f"is {row.integer('cop')}, whose option is blank")
            text = row.string("question")
            question = Question(row.string("id"), text, (answer,), choices, task=cls.TASK)
            explanation = row.string("exp", optional=True)
            if explanation.strip():
                passage = context(row.string("subject_name", optional=True), explanation)
                yield SetRow(question, (GoldPassage(passage.id),), (passage,))
            else:
                yield SetRow(question)


def _base(path: Path, read: Callable[[Path], Iterator[InputLine]]) -> int:
    """Whether ``cop`` counts from 0 or 1."""
    lowest, highest, agreeing = 4, 0, [0, 0]
    for row in read(path):
        cop = row.integer("cop")
        if not 0 <= cop <= len(_OPTIONS):
            problem = "; the test file has no answers" if cop < 0 else ""
            raise row.error("cop", f"is {cop}; it must be the number of one of 4 options{problem}")
        lowest, highest = min(lowest, cop), max(highest, cop)
        named = _EXPLAINED.match(row.string("exp", optional=True))
        if named:
            for base in (0, 1):
                agreeing[base] += cop - base == "abcd".index(named[1].lower())
    return _decide(path, lowest, highest, agreeing)


def _decide(path: Path, lowest: int, highest: int, agreeing: list[int]) -> int:
    found = (
        f"{path}: field 'cop' is {lowest} to {highest}, and the letters that explanations name "
        f"agree with {agreeing[0]} rows counted from 0 and {agreeing[1]} counted from 1"
    )
    possible = [base for base in (0, 1) if base <= lowest and highest < base + len(_OPTIONS)]
    if not possible:
        raise InputError(f"{found}: 0 and 4 cannot both be numbers of four options")
    best = max(possible, key=lambda base: agreeing[base])
    if len(possible) == 2 and agreeing[0] == agreeing[1]:
        raise InputError(f"{found}: nothing tells whether options count from 0 or 1")
    if agreeing[best] < agreeing[1 - best]:
        raise InputError(f"{found}: the numbers and the explanations contradict each other")
    return best
