"""2WikiMultiHopQA: questions over two to four paragraphs of Wikipedia, built from Wikidata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.core.jsonl_input import read_input
from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.formats.flashrag import read_flashrag
from jaxrag.data.formats.hotpot import read_hotpot
from jaxrag.data.set_row import SetRow

_DATA = "https://www.dropbox.com/s/ms2m13252h6xubs/data_ids_april7.zip"


class TwoWiki(BenchmarkBuilder, skip_registration=True):
    """2WikiMultiHopQA. A question's contexts are its ten paragraphs.

    Their union over all splits is the corpus that papers search: "2wiki_contexts", where a
    passage's id is its title. Build all splits for it; test is among them for its paragraphs only,
    since its answers and supporting facts are not published. Where two paragraphs have one title,
    the first is kept, which the build counts. Gold passages are the paragraphs with the titles of
    the supporting facts.

    Answers include the aliases and demonyms of ``id_aliases.json`` where that file is there, as in
    the authors' evaluation; FlashRAG's files have the answer alone. FlashRAG's training file is a
    draw of 15,000: another size than the published one, which the build says. Other sets have files
    of the same names: give a directory of this set.
    """

    NAME = "2wiki"
    SPLITS: ClassVar = {"train": 167_454, "dev": 12_576, "test": 12_576}
    EVALUATED = "dev"
    CORPUS = "2wiki_contexts"
    CONTEXTS = "2wiki_contexts"
    CONTEXTS_SIZE = 431_000
    FILES: ClassVar = {
        "train.json": _DATA,
        "dev.json": _DATA,
        "test.json": _DATA,
        "id_aliases.json": _DATA,
    }
    NEEDS: ClassVar = {
        "train": (("train.json", "id_aliases.json"), ("train.json",)),
        "dev": (("dev.json", "id_aliases.json"), ("dev.json",)),
        "test": (("test.json",),),
    }
    FLASHRAG: ClassVar = {
        "train": "2wikimultihopqa/train.jsonl",
        "dev": "2wikimultihopqa/dev.jsonl",
    }
    LICENCE = "Apache 2.0 (of the authors' repository; none is stated for the data)"
    CITATION = (
        "Ho et al., Constructing A Multi-hop QA Dataset for Comprehensive Evaluation of Reasoning "
        "Steps, COLING 2020"
    )
    SOURCE = "https://github.com/Alab-NII/2wikimultihop"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions with their ten paragraphs."""
        path = files.get("id_aliases.json")
        yield from read_hotpot(
            files[f"{split}.json"],
            title_ids=True,
            aliases={} if path is None else _aliases(path),
            answered=split != "test",
        )

    @classmethod
    def read_flashrag(cls, path: Path, split: str) -> Iterator[SetRow]:
        """The same from FlashRAG's file."""
        yield from read_flashrag(path, task=cls.TASK, title_ids=True)


def _aliases(path: Path) -> dict[str, tuple[str, ...]]:
    """Other names of an answer by its Wikidata id: aliases, then demonyms."""
    return {
        line.string("Q_id"): (
            *line.strings("aliases", optional=True),
            *line.strings("demonyms", optional=True),
        )
        for line in read_input(path)
    }
