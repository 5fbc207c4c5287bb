"""The corpora that papers search, built from their published files.

A built corpus lies in ``CACHE/corpora/NAME``; a part of it, for development, in
``CACHE/corpora/NAME-PART``. Sources, sizes and licences are those that the publishers state.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from jaxrag.core.file_states import FileState, check_unchanged
from jaxrag.core.hashing import hash64
from jaxrag.core.progress import progress
from jaxrag.data.conversion import folder_corpus
from jaxrag.data.downloads import published_name
from jaxrag.retrieval.corpus import formats
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.types import InputError, Passage

_log = logging.getLogger("jaxrag")
_REPORTED = 1000  # passages between two reports of progress


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A published corpus.

    Attributes:
      passages: number of passages.
      file: address of the published file (`jaxrag.data.downloads`).
      read: local path of the file, or of the archive that has it -> passages, in its order.
      gigabytes: size on disk once built, roughly.
    """

    name: str
    about: str
    passages: int
    file: str
    read: Callable[[Path], Iterator[Passage]]
    gigabytes: float
    licence: str
    citation: str


_WIKIPEDIA = "text of Wikipedia: CC BY-SA 3.0 and GFDL"
_DPR = "Karpukhin et al., Dense Passage Retrieval for Open-Domain Question Answering, EMNLP 2020"

CORPORA: Mapping[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            name="psgs_w100",
            about="Wikipedia of 20 December 2018 in passages of 100 words, DPR's",
            passages=21_015_324,
            file="https://dl.fbaipublicfiles.com/dpr/wikipedia_split/psgs_w100.tsv.gz",
            read=formats.read_dpr,
            gigabytes=11,
            licence=f"CC BY-NC 4.0 (DPR's data); {_WIKIPEDIA}",
            citation=_DPR,
        ),
        Corpus(
            name="wiki18_100w",
            about="the passages of psgs_w100 in FlashRAG's form; ids count from 0",
            passages=21_015_324,
            file="hf:RUC-NLPIR/FlashRAG_datasets:retrieval-corpus/wiki18_100w.zip#wiki18_100w.jsonl",
            read=formats.read_wiki18,
            gigabytes=11,
            licence=_WIKIPEDIA,
            citation=f"Jin et al., FlashRAG, 2024; {_DPR}",
        ),
        Corpus(
            name="hotpotqa_abstracts",
            about="first paragraphs of Wikipedia of October 2017; a passage's id is its title",
            passages=5_233_329,
            file="https://nlp.stanford.edu/projects/hotpotqa/"
            "enwiki-20171001-pages-meta-current-withlinks-abstracts.tar.bz2",
            read=formats.read_hotpotqa,
            gigabytes=2,
            licence="CC BY-SA 4.0",
            citation="Yang et al., HotpotQA, EMNLP 2018",
        ),
        Corpus(
            name="msmarco",
            about="MS MARCO's passages",
            passages=8_841_823,
            file="https://msmarco.z22.web.core.windows.net/msmarcoranking/collection.tar.gz"
            "#collection.tsv",
            read=formats.read_collection,
            gigabytes=3,
            licence="MS MARCO: non-commercial research",
            citation="Nguyen et al., MS MARCO, 2016",
        ),
    )
}

TITLE_CORPORA = ("hotpotqa_abstracts", "2wiki_contexts")
"""Corpora in which a passage's id is its title, which supporting facts name."""


@dataclasses.dataclass(frozen=True)
class Subset:
    """A part of a corpus, in the corpus's order: the first passages, or named ones and others.

    Attributes:
      first: number of first passages; 0 to take named ones and others instead.
      ids: ids of passages that must be in it, such as the gold passages of a data set.
      ids_of: what the ids are of, such as "nq"; part of the directory's name.
      others: number of further passages, drawn by a hash of their ids. They are held in memory
        while the corpus is read. A larger draw with the same seed has all of a smaller one.
      seed: of the draw.
    """

    first: int = 0
    ids: frozenset[str] = frozenset()
    ids_of: str = ""
    others: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.first, self.others) < 0 or bool(self.first) == bool(self.ids or self.others):
            raise InputError(
                f"first is {self.first}, others {self.others}, with {len(self.ids)} named passages:"
                " a part of a corpus is its first passages, or named ones and others."
            )
        if bool(self.ids) != bool(self.ids_of):
            raise InputError("named passages need the name of what they are of (ids_of)")

    @property
    def name(self) -> str:
        """A name for directories: "first1000", "nq+10000", "10000seed1"."""
        if self.first:
            return f"first{self.first}"
        parts = [self.ids_of] if self.ids_of else []
        if self.others:
            parts.append(f"{self.others}" + (f"seed{self.seed}" if self.seed else ""))
        return "+".join(parts)

    def of(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        """The part's passages, read in one pass; InputError for fewer, or none that is named."""
        if self.first:
            count = 0
            for count, passage in enumerate(itertools.islice(passages, self.first), 1):  # noqa: B007
                yield passage
            if count < self.first:
                raise InputError(
                    f"the corpus has {count:,} passages, fewer than first={self.first:,}"
                )
            return
        named: list[tuple[int, Passage]] = []
        drawn: list[tuple[int, int, Passage]] = []  # a heap; its smallest has the largest hash
        for row, passage in enumerate(passages):
            if passage.id in self.ids:
                named.append((row, passage))
            elif self.others:
                item = (-hash64(f"{self.seed} {passage.id}"), row, passage)
                if len(drawn) < self.others:
                    heapq.heappush(drawn, item)
                elif item > drawn[0]:
                    heapq.heapreplace(drawn, item)
        if self.ids and not named:
            raise InputError(
                f"none of the {len(self.ids):,} passages named by {self.ids_of}, such as"
                f" {min(self.ids)!r}, is in the corpus: they are ids of another one"
            )
        if missing := len(self.ids) - len(named):
            _log.warning("%d passages named by %s are not in the corpus", missing, self.ids_of)
        if len(drawn) < self.others:
            raise InputError(
                f"the corpus has only {len(drawn):,} others, fewer than {self.others:,}"
            )
        rows = sorted([*named, *((row, passage) for _, row, passage in drawn)], key=lambda x: x[0])
        yield from (passage for _, passage in rows)


def corpus_directory(name: str, cache: Path, subset: Subset | None = None) -> Path:
    """Where a built corpus, or a part of it, lies."""
    return Path(cache) / "corpora" / (f"{name}-{subset.name}" if subset else name)


class NamedPart(NamedTuple):
    """Parts of a name such as "psgs_w100-nq+1000": the corpus, the set, the number of others."""

    corpus: str
    gold_of: str
    others: int


def named_part(name: str) -> NamedPart | None:
    """The part of a corpus that a name such as "psgs_w100-nq+1000" stands for; else None."""
    base = next((corpus for corpus in CORPORA if name.startswith(f"{corpus}-")), "")
    gold_of, plus, others = name.removeprefix(f"{base}-").rpartition("+")
    if not base or not plus or not others.isdecimal():
        return None
    return NamedPart(base, gold_of, int(others))


def build_arguments(name: str) -> str:
    """What `jaxrag data` is given to build a corpus, or a part of one."""
    part = named_part(name)
    if part is None:
        return name
    return f"{part.corpus} --gold_of={part.gold_of.replace('+', ',')} --others={part.others}"


def open_corpus(name: str, cache: Path) -> Passages:
    """A corpus by name or path (with a "/"): built, or a folder's corpus.jsonl; else InputError."""
    if "/" in name and (rows := Path(name) / "corpus.jsonl").is_file():
        return folder_corpus(rows, cache)
    directory = corpus_directory(name, cache)
    if "/" in name or is_complete(directory):
        return Passages.open(Path(name) if "/" in name else directory)
    argument = build_arguments(name).removesuffix("-contexts")
    built = sorted(path.name for path in directory.parent.glob("*") if is_complete(path))
    raise InputError(
        f"the corpus {name} is not built in {cache}; build it with `jaxrag data"
        f" {argument} --workdir={cache}` (add --source=DIR for files at hand)."
        f" Built there: {', '.join(built) or 'none'}"
    )


def build_corpus(
    name: str,
    cache: Path,
    path: Path | None = None,
    *,
    any_size: bool = False,
    subset: Subset | None = None,
    workers: int | None = None,
) -> Passages:
    """Builds a corpus from its published file, or opens it if it is built.

    An interrupted build goes on when it is called again. InputError for no file of a corpus that is
    not built, a malformed row, another number of passages, or a full disk.

    Args:
      name: key of `CORPORA`.
      cache: where `corpus_directory` is.
      path: of the published file, plain or packed, or of the archive that has it; None if the
        corpus is built.
      any_size: accept another number of passages than the published one, of a built corpus, too.
      subset: the part to build.
      workers: processes that write; None for one a core, up to 4.
    """
    corpus, directory = CORPORA[name], corpus_directory(name, cache, subset)
    if is_complete(directory):
        built = Passages.open(directory)
        if not any_size and subset is None and len(built) != corpus.passages:
            raise InputError(
                f"{directory} has {len(built):,} passages, the published corpus"
                f" {corpus.passages:,}: it was built with --any_size. Give that again to go on "
                "with it, or remove the directory and build it from whole files"
            )
        return built
    if path is None:
        raise InputError(f"{directory} is not built, and there is no file to build it from")
    directory.parent.mkdir(parents=True, exist_ok=True)
    passages = _counted(corpus, path, directory, subset, any_size=any_size)
    about = {
        "corpus": name,
        "part": subset.name if subset else "all",
        "files": {published_name(corpus.file): path.stat().st_size},
        "licence": corpus.licence,
        "citation": corpus.citation,
    }
    chosen = subset.of(passages) if subset else passages
    return write_passages(directory, chosen, about=about, workers=workers)


def _counted(
    corpus: Corpus, path: Path, directory: Path, subset: Subset | None, *, any_size: bool
) -> Iterator[Passage]:
    """The corpus's passages with progress; the file and their number are checked at the end."""
    state = FileState.of(path)
    count, first = 0, subset.first if subset else 0
    total = first or corpus.passages
    with progress(total, f"building {directory.name}") as advance:
        for count, passage in enumerate(corpus.read(path), 1):
            yield passage
            if not count % _REPORTED:
                advance(_REPORTED)
    check_unchanged([state])
    if not any_size and not first and count != corpus.passages:
        raise InputError(
            f"{corpus.name}: the file has {count:,} passages, the published corpus"
            f" {corpus.passages:,}; get it again, or accept it with --any_size"
        )
