"""Building a published set: its questions, the corpus of its own contexts, and their figures.

The files are read as streams: for the figures and checks, before anything is written, for the
contexts and for the questions. Memory grows by about 400 bytes a question and different context.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrag.core.durable_files import rename
from jaxrag.core.hashing import hash64, hashed_once, read_as_hashed
from jaxrag.core.progress import progress
from jaxrag.data.benchmark import set_directory
from jaxrag.data.corpora import corpus_directory
from jaxrag.data.dataset import OTHERS, OWN, LabelledQuestion, SetRow, read_about, write_questions
from jaxrag.data.downloads import Downloads, is_address, published_name
from jaxrag.data.leakage import question_hash
from jaxrag.data.sets import PublishedSet
from jaxrag.retrieval.corpus.passages import write_passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.types import InputError, Passage

_log = logging.getLogger("jaxrag")

_FORMAT = 1  # increase it when a set's rows change for the same files
_SLACK = 20  # a rounded number of contexts may be off by a twentieth
_REPORTED = 500  # questions between two reports of progress

SplitFiles = Mapping[str, Mapping[str, Path]]
"""By split, the paths of its files by published name."""


@dataclasses.dataclass
class SplitFigures:
    """Numbers of what a split has.

    ``answers`` counts gold answers, aliases too; ``choices`` questions with choices; ``gold`` those
    with gold passages, by corpus ("" for the set's own contexts).
    """

    questions: int = 0
    published: int = 0
    answers: int = 0
    choices: int = 0
    gold: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, row: SetRow) -> None:
        """Counts a question."""
        self.questions += 1
        self.answers += len(row.question.answers)
        self.choices += bool(row.question.choices)
        for corpus in dict.fromkeys(passage.corpus for passage in row.gold if passage.grade > 0):
            self.gold[corpus] = self.gold.get(corpus, 0) + 1


@dataclasses.dataclass(frozen=True)
class BuiltSet:
    """A built set; plain JSON in the manifest of its directory.

    ``absent`` are splits whose files were not there; ``shared`` counts the questions of one split
    whose normalised text is in another, by "split/split"; ``files`` has bytes and SHA-256 of those
    that were read, by published name.
    """

    name: str
    splits: Mapping[str, SplitFigures]
    absent: tuple[str, ...]
    shared: Mapping[str, int]
    contexts: Mapping[str, int]
    files: Mapping[str, Mapping[str, Any]]
    format: int = _FORMAT

    @classmethod
    def read(cls, directory: Path) -> BuiltSet:
        """The figures of a built set; InputError for a directory that is none."""
        about = read_about(directory)
        try:
            names = [field.name for field in dataclasses.fields(SplitFigures)]
            splits = {
                split: SplitFigures(**{name: figures[name] for name in names})
                for split, figures in about["splits"].items()
            }
            return cls(**{**about, "splits": splits, "absent": tuple(about["absent"])})
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{directory} was not built by jaxrag data ({error}); remove it and build it again"
            ) from None


def published_files(
    published: PublishedSet, downloads: Downloads, *, splits: Sequence[str] = (), gold: bool = False
) -> dict[str, dict[str, Path]]:
    """By split, the paths of its files: those that the user has, or downloaded ones.

    ``splits`` () is all, of which those are left out whose files the user has not; ``gold`` also
    downloads the files that mark gold passages. InputError for an unknown split, if the user has
    the files of none (or not of a split that is named), or a download fails.
    """
    if unknown := [split for split in splits if split not in published.splits]:
        raise InputError(
            f"{unknown[0]!r} is no split of {published.name}; it has {', '.join(published.splits)}"
        )
    by_split = {}
    for split in splits or published.splits:
        addresses = published.addresses(split)
        if downloads.source is None and not all(map(is_address, addresses)):
            raise _missing_files(published, None)
        files = {published_name(address): downloads.get(address) for address in addresses}
        marks = published.gold.get(split, ()) if gold or downloads.source else ()
        if all(files.values()):
            files |= {published_name(mark): downloads.get(mark) for mark in marks}
            by_split[split] = {name: path for name, path in files.items() if path}
    if not by_split or set(splits) - by_split.keys():
        raise _missing_files(published, downloads.source)
    return by_split


def _missing_files(published: PublishedSet, directory: Path | None) -> InputError:
    """The error that a split cannot be read, with all files; ``directory`` is that of the user."""
    lines = []
    for split in published.splits:
        files = published.addresses(split)
        listed = (f"{published_name(address)} ({address.partition('#')[0]})" for address in files)
        lines.append(f"\n  {split}: {' with '.join(listed if is_address(files[0]) else files)}")
    where = (
        f"{directory} and its folders have no file of {published.name}"
        if directory
        else f"{published.name} cannot be downloaded by a program; get it from {published.source} "
        "and give --source=DIR"
    )
    return InputError(
        f"{where}. Its splits are read from these files, plain or packed (gzip, bzip2, xz):"
        + "".join(lines)
    )


def build_set(
    published: PublishedSet, files: SplitFiles, cache: Path, *, any_size: bool = False
) -> BuiltSet:
    """Builds a set, and the corpus of its contexts if it has some, below ``cache``.

    A set that was built from the same files is kept (one of other sizes only with ``any_size``, as
    when it is built), and one that was built from others is replaced when the new one is complete.
    InputError for a malformed row, a repeated question id, another number of questions than
    published (which ``any_size`` accepts), or a full disk.
    """
    directory = set_directory(published.name, cache)
    paths = {name: path for by_name in files.values() for name, path in by_name.items()}
    digests = Path(cache) / "digests"
    sources = {name: hashed_once(path, digests) for name, path in sorted(paths.items())}
    record = {
        name: {"bytes": source.state.bytes, "sha256": source.sha256}
        for name, source in sources.items()
    }
    if is_complete(directory):
        built = BuiltSet.read(directory)
        if (built.files, list(built.splits), built.format) == (record, list(files), _FORMAT):
            if not any_size:
                _check_sizes(published, built, f"{directory}, built with --any_size")
            return built
        _log.warning("%s was built from other files; it is replaced", directory)
    built = _survey(published, files, record)
    if not any_size:
        _check_sizes(published, built, ", ".join(map(str, paths.values())))
    if built.contexts["passages"]:
        contexts = read_as_hashed(_contexts(published, files), sources.values())
        corpus = corpus_directory(published.contexts_name, cache)
        new = _beside(corpus)
        write_passages(new, contexts)
        _replace(new, corpus)
    questions = {
        split: (
            LabelledQuestion(row.question, row.gold)
            for row in read_as_hashed(_rows(published, by_name, split, "writing"), sources.values())
        )
        for split, by_name in files.items()
    }
    new = _beside(directory)
    write_questions(new, questions, about=dataclasses.asdict(built))
    _replace(new, directory)
    return built


def _check_sizes(published: PublishedSet, built: BuiltSet, where: str) -> None:
    """Refuses other numbers of questions and contexts than the published ones."""
    for split, part in built.splits.items():
        if part.questions != part.published:
            raise InputError(
                f"{split} of {published.name} ({where}) has {part.questions:,} questions, but the "
                f"published split has {part.published:,}: is a file cut or of another version? "
                "--any_size accepts it"
            )
    count, size = built.contexts["passages"], published.contexts_size
    if not count and published.corpus in (OWN, OTHERS):
        raise InputError(
            f"{published.name}: no question brings a passage, and papers search these: are the "
            "files of another version? --any_size accepts it"
        )
    if abs(count - size) > size // _SLACK and size:
        raise InputError(
            f"{published.name} has {count:,} different contexts, but its corpus "
            f"{published.contexts_name} has about {size:,}, over all of "
            f"{', '.join(published.splits)}: give the files of all splits; --any_size accepts it"
        )


def _survey(
    published: PublishedSet, files: SplitFiles, record: Mapping[str, Mapping[str, Any]]
) -> BuiltSet:
    """Reads all splits for their figures; refuses repeated ids."""
    splits, texts = dict[str, SplitFigures](), dict[str, set[int]]()
    contexts = set[int]()  # hashes of ids
    for split, paths in files.items():
        figures, ids = SplitFigures(published=published.splits[split]), set[int]()
        splits[split], texts[split] = figures, set()
        for row in _rows(published, paths, split, "checking"):
            figures.add(row)
            if (key := hash64(row.question.id)) in ids:
                where = f"{split} of {published.name} ({', '.join(map(str, paths.values()))})"
                raise InputError(
                    f"{where}: {row.question.id!r} is the id of two questions; the second is "
                    f"number {figures.questions:,}"
                )
            ids.add(key)
            texts[split].add(question_hash(row.question.text))
            contexts.update(hash64(passage.id) for passage in row.contexts)
    pairs = itertools.combinations(splits, 2)
    return BuiltSet(
        name=published.name,
        splits=splits,
        absent=tuple(split for split in published.splits if split not in splits),
        shared={f"{a}/{b}": len(texts[a] & texts[b]) for a, b in pairs},
        contexts={"passages": len(contexts)},
        files=record,
    )


def _rows(
    published: PublishedSet, files: Mapping[str, Path], split: str, doing: str
) -> Iterator[SetRow]:
    """The questions of a split, with progress."""
    number, label = 0, f"{doing} {published.name} {split}"
    with progress(published.splits[split], label) as advance:
        for number, row in enumerate(published.rows(files, split), 1):
            yield row
            if not number % _REPORTED:
                advance(_REPORTED)
        advance(number % _REPORTED)


def _contexts(published: PublishedSet, files: SplitFiles) -> Iterator[Passage]:
    seen = set[int]()
    for split, by_name in files.items():
        for row in _rows(published, by_name, split, "writing contexts of"):
            for passage in row.contexts:
                if (key := hash64(passage.id)) not in seen:
                    seen.add(key)
                    yield passage


def _beside(directory: Path) -> Path:
    """Where a directory's new content is written; what an earlier build left there is removed."""
    new = directory.with_name(f"{directory.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    return new


def _replace(new: Path, directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
    rename(new, directory)
