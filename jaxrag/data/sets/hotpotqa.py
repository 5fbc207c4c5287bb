"""HotpotQA: questions over two paragraphs of Wikipedia."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.formats.flashrag import read_flashrag
from jaxrag.data.formats.hotpot import read_hotpot
from jaxrag.data.set_row import SetRow

_HOST = "http://curtis.ml.cmu.edu/datasets/hotpot"


class HotpotQA(BenchmarkBuilder, skip_registration=True):
    """HotpotQA. A question's contexts are its two supporting and eight distracting paragraphs.

    Gold passages are the paragraphs with the titles of the supporting facts: of the contexts, and
    of the corpus of all first paragraphs, where a passage's id is its title. Titles are kept as
    published, with HTML entities ("Etiquette &amp; Espionage"). The fullwiki file of the dev split
    has the same questions with retrieved paragraphs, which may lack the supporting ones (these stay
    gold); it serves if the distractor file is not there. Test answers are not published.
    """

    NAME = "hotpotqa"
    SPLITS: ClassVar = {"train": 90_447, "dev": 7_405}
    EVALUATED = "dev"
    CORPUS = "hotpotqa_abstracts"
    FILES: ClassVar = {
        "hotpot_train_v1.1.json": f"{_HOST}/hotpot_train_v1.1.json",
        "hotpot_dev_distractor_v1.json": f"{_HOST}/hotpot_dev_distractor_v1.json",
        "hotpot_dev_fullwiki_v1.json": f"{_HOST}/hotpot_dev_fullwiki_v1.json",
    }
    NEEDS: ClassVar = {
        "train": (("hotpot_train_v1.1.json",),),
        "dev": (("hotpot_dev_distractor_v1.json",), ("hotpot_dev_fullwiki_v1.json",)),
    }
    FLASHRAG: ClassVar = {split: f"hotpotqa/{split}.jsonl" for split in SPLITS}
    LICENCE = "CC BY-SA 4.0"
    CITATION = (
        "Yang et al., HotpotQA: A Dataset for Diverse, Explainable Multi-hop Question Answering, "
        "EMNLP 2018"
    )
    SOURCE = "https://hotpotqa.github.io"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions with their ten paragraphs."""
        (path,) = files.values()
        yield from read_hotpot(path, titles_of=cls.CORPUS)

    @classmethod
    def read_flashrag(cls, path: Path, split: str) -> Iterator[SetRow]:
        """The same from FlashRAG's file."""
        yield from read_flashrag(path, task=cls.TASK, titles_of=cls.CORPUS)
