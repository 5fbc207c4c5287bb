"""Natural Questions, open: questions of Google's users with short answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.core.jsonl_input import read_input
from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.formats.dpr import read_dpr_table
from jaxrag.data.set_row import SetRow
from jaxrag.types import Question

_DPR = "https://dl.fbaipublicfiles.com/dpr/data/retriever/"
_OPEN = (
    "https://raw.githubusercontent.com/google-research-datasets/natural-questions/"
    "a7a113c9fdc2d9986d624bd43b8a18d6d5779eaa/nq_open/"
)


class NaturalQuestions(BenchmarkBuilder, skip_registration=True):
    """Natural Questions, open: questions of Google's users with short answers.

    The papers' splits are DPR's: their test is the official development set, their train and dev
    are drawn from the official training set, which is the split train_dev here. Its rows do not say
    which is which. Rows have no ids: the id of a question is its split and row. Gold passages are
    those of DPR's training files; their ids are of psgs_w100. Questions of dev and test have none
    unless DPR's file of dev is there.
    """

    NAME = "nq"
    SPLITS: ClassVar = {"train": 79_168, "dev": 8_757, "test": 3_610, "train_dev": 87_925}
    EVALUATED = "test"
    CORPUS = "psgs_w100"
    FILES: ClassVar = {
        **{f"nq-{s}.qa.csv": f"{_DPR}nq-{s}.qa.csv" for s in ("train", "dev", "test")},
        "NQ-open.train.jsonl": f"{_OPEN}NQ-open.train.jsonl",
        "NQ-open.dev.jsonl": f"{_OPEN}NQ-open.dev.jsonl",
        "biencoder-nq-train.json.gz": f"{_DPR}biencoder-nq-train.json.gz",
        "biencoder-nq-dev.json.gz": f"{_DPR}biencoder-nq-dev.json.gz",
    }
    NEEDS: ClassVar = {
        "train": (("nq-train.qa.csv",),),
        "dev": (("nq-dev.qa.csv",),),
        "test": (("nq-test.qa.csv",), ("NQ-open.dev.jsonl",)),
        "train_dev": (("NQ-open.train.jsonl",),),
    }
    OPTIONAL: ClassVar = {
        "train": ("biencoder-nq-train.json.gz",),
        "dev": ("biencoder-nq-dev.json.gz",),
    }
    FLASHRAG: ClassVar = {split: f"nq/{split}.jsonl" for split in ("train", "dev", "test")}
    TFDS = "natural_questions_open"
    LICENCE = "CC BY-SA 3.0; DPR's files CC BY-NC 4.0"
    CITATION = (
        "Kwiatkowski et al., Natural Questions, TACL 2019; Lee et al., Latent Retrieval for Weakly "
        "Supervised Open Domain Question Answering, ACL 2019"
    )
    SOURCE = "https://github.com/google-research-datasets/natural-questions/tree/master/nq_open"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions of DPR's table, or of the official JSON lines."""
        path = files.get(f"nq-{split}.qa.csv")
        if path is not None:
            yield from read_dpr_table(path, split=split)
            return
        official = "train" if split == "train_dev" else "dev"
        for number, line in enumerate(read_input(files[f"NQ-open.{official}.jsonl"])):
            answers = tuple(dict.fromkeys(line.strings("answer")))
            yield SetRow(Question(f"{split}_{number}", line.string("question"), answers))
