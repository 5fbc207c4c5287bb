"""2WikiMultiHopQA: questions over two to four paragraphs of Wikipedia, built from Wikidata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from jaxrag.core.jsonl_input import read_input
from jaxrag.data.builder import BenchmarkBuilder, SetRow
from jaxrag.data.formats.flashrag import read_flashrag
from jaxrag.data.formats.hotpot import read_hotpot
from jaxrag.types import Passage

_DATA = "https://www.dropbox.com/s/ms2m13252h6xubs/data_ids_april7.zip"


class TwoWiki(BenchmarkBuilder, skip_registration=True):
    """2WikiMultiHopQA. A question's contexts are its ten paragraphs.

    Gold passages are the paragraphs with the titles of the supporting facts: of the contexts, and
    of the union of all paragraphs, where a passage's id is its title (`wiki2_passages`). Answers
    include the aliases and demonyms of ``id_aliases.json`` where that file is there, as in the
    authors' evaluation; FlashRAG's files have the answer alone. FlashRAG's training file is a draw
    of 15,000: another size than the published one, which the build says. Test answers are not
    published. The files are named as those of other sets: give a directory of this set only.
    """

    NAME = "2wiki"
    SPLITS: ClassVar = {"train": 167_454, "dev": 12_576}
    EVALUATED = "dev"
    CORPUS = "2wiki_contexts"
    FILES: ClassVar = {
        "train.json": _DATA,
        "dev.json": _DATA,
        "id_aliases.json": _DATA,
        "2wikimultihopqa/train.jsonl": "",
        "2wikimultihopqa/dev.jsonl": "",
    }
    NEEDS: ClassVar = {
        "train": (("train.json",), ("2wikimultihopqa/train.jsonl",)),
        "dev": (("dev.json",), ("2wikimultihopqa/dev.jsonl",)),
    }
    OPTIONAL: ClassVar = {"train": ("id_aliases.json",), "dev": ("id_aliases.json",)}
    LICENCE = "Apache 2.0 (of the authors' repository; none is stated for the data)"
    CITATION = (
        "Ho et al., Constructing A Multi-hop QA Dataset for Comprehensive Evaluation of Reasoning "
        "Steps, COLING 2020"
    )
    SOURCE = "https://github.com/Alab-NII/2wikimultihop"

    @classmethod
    def read(cls, files: Mapping[str, Path], split: str) -> Iterator[SetRow]:
        """The questions, from the authors' JSON or FlashRAG's JSONL."""
        if f"{split}.json" not in files:
            yield from read_flashrag(files[f"2wikimultihopqa/{split}.jsonl"], titles_of=cls.CORPUS)
            return
        path = files.get("id_aliases.json")
        aliases = {} if path is None else _aliases(path)
        yield from read_hotpot(files[f"{split}.json"], titles_of=cls.CORPUS, aliases=aliases)


def wiki2_passages(rows: Iterable[SetRow]) -> Iterator[Passage]:
    """The union of the contexts of questions, with the title as id.

    Of paragraphs with one title the first is kept, so that titles are unique. Memory: the titles.
    """
    seen: set[str] = set()
    for row in rows:
        for passage in row.contexts:
            if passage.title not in seen:
                seen.add(passage.title)
                yield Passage(passage.title, passage.title, passage.text)


def _aliases(path: Path) -> dict[str, tuple[str, ...]]:
    """Other names of an answer by its Wikidata id: aliases, then demonyms."""
    return {
        line.string("Q_id"): (
            *line.strings("aliases", optional=True),
            *line.strings("demonyms", optional=True),
        )
        for line in read_input(path)
    }
