"""Builds the published sets of questions, and the corpora that papers search.

    jaxrag data nq --source ~/downloads
    jaxrag data psgs_w100
    jaxrag data --list

NAME is a set (nq, triviaqa, ...) or a corpus (psgs_w100, ...); several may be given. Published
files are taken from ``--source DIR``, where they may lie in sub-folders, as published or unpacked;
without it they are downloaded. Downloads and builds go on where they were interrupted when the same
command is given again. ``--workdir`` (by default the cache, where runs look) gets
``sets/NAME``, ``corpora/NAME`` and the downloads.

``--splits train,test`` builds only these splits of a set. ``--any_size`` accepts files that have
another number of rows than the published ones; without it such files, and what was built from them
before, are refused. ``--gold`` also downloads DPR's files for a
set, which mark gold passages and are large. A part of a corpus, for development: its first passages
(``--first 100000``), or the gold passages of sets that are built and others at random (``--gold_of
nq,webq --others 100000 --seed 0``); such a part is searched with ``--config.data.corpus=`` and the
name that is printed.

Exit code 0: done; 2: wrong input.
"""

from __future__ import annotations

import difflib
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from absl import flags
from rich.console import Console
from rich.table import Table

from jaxrag.core.printable import terminal_text
from jaxrag.core.progress import duration_text, size_text
from jaxrag.data.benchmark import gold_of, set_directory
from jaxrag.data.building import BuiltSet, build_set, published_files
from jaxrag.data.corpora import CORPORA, Corpus, Subset, build_corpus, corpus_directory, open_corpus
from jaxrag.data.dataset import OTHERS, OWN
from jaxrag.data.downloads import Downloads, published_name
from jaxrag.data.sets import SETS, PublishedSet
from jaxrag.experiments.configuration import parse_named, script
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.types import InputError

_VECTOR = 768 * 2  # bytes of a passage's vector, float16, in an index of the usual encoders
_BUILD = 24  # bytes of memory for each passage while its ids are sorted
_RATE = 22_000  # passages/s that are built, measured with benchmarks.corpus (docs/data.md)
_WIDTH = 100


def main(argv: Sequence[str]) -> int:
    """Builds the named sets and corpora, or lists all."""
    names, values = read_command(argv)
    workdir = Path(values.workdir)
    console = Console(width=max(Console().width, _WIDTH))
    if values.list:
        for table in (_list_sets(workdir), _list_corpora(workdir)):
            console.print(table)
        return 0
    for name in names:
        _build(name, values, workdir, console)
    return 0


def _build(name: str, values: flags.FlagValues, workdir: Path, console: Console) -> None:
    """Builds a set or a corpus; of a name that both have, what the source has."""
    part = bool(values.first or values.gold_of or values.others)
    as_set, as_corpus = name in SETS and not (part and name in CORPORA), name in CORPORA
    if as_set and as_corpus and values.source:
        downloads, splits = _downloads(name, values, workdir), SETS[name].splits
        as_corpus = _corpus_file(name, values, workdir) is not None
        has_files = (all(map(downloads.get, SETS[name].addresses(split))) for split in splits)
        as_set = not as_corpus or any(has_files)
    if as_set:
        if part:
            raise InputError(f"--first, --gold_of and --others are of corpora; {name} is a set")
        _build_set(name, values, workdir, console)
    elif values.splits:
        raise InputError(f"--splits are of sets; {name} is a corpus")
    if as_corpus:
        _build_corpus(CORPORA[name], values, workdir)


def read_command(argv: Sequence[str]) -> tuple[list[str], flags.FlagValues]:
    """The sets and corpora to build, and the flags; InputError for an unknown one, or without."""
    names, values = parse_named(argv, "data")
    if not names and not values.list:
        raise InputError("name a set or a corpus: jaxrag data NAME, or --list")
    contexts = {published.contexts_name: name for name, published in SETS.items()}
    names = list(dict.fromkeys(contexts.get(name, name) for name in names))
    buildable = [*SETS, *CORPORA]
    for name in names:
        if name not in buildable:
            near = difflib.get_close_matches(name, buildable, 1, 0)[0]
            raise InputError(
                f"{name!r} is neither a set nor a corpus. Sets: {', '.join(SETS)}; corpora: "
                f"{', '.join(CORPORA)}. Nearest: {near}."
            )
    return names, values


def _downloads(name: str, values: flags.FlagValues, workdir: Path) -> Downloads:
    """Where the files of a set or corpus come from."""
    source = Path(values.source).expanduser() if values.source else None
    return Downloads(workdir / "downloads" / name, source)


def _build_set(name: str, values: flags.FlagValues, workdir: Path, console: Console) -> None:
    published = SETS[name]
    for line in _needs(published, workdir):
        print(line)
    downloads = _downloads(name, values, workdir)
    files = published_files(published, downloads, splits=values.splits, gold=values.gold)
    started = time.monotonic()
    built = build_set(published, files, workdir, any_size=values.any_size)
    console.print(_split_table(built))
    for line in _notes(built, published, workdir):
        print(line)
    if built.contexts["passages"]:
        print(_corpus_line(published.contexts_name, workdir, started))


def _needs(published: PublishedSet, workdir: Path) -> list[str]:
    """What a set and the corpus that papers search with it need on this machine."""
    questions = sum(published.splits.values())
    lines = [
        f"{published.name}: {questions:,} questions; licence {published.licence}; from "
        f"{published.source}",
        f"  disk: at most as much as its files when they are unpacked; {_free(workdir)}",
        "  memory: 0.2 GB, and 0.4 kB for each question and each different context",
    ]
    if published.corpus in CORPORA:
        lines += [
            f"  papers search {line}" for line in _corpus_needs(CORPORA[published.corpus], workdir)
        ]
    else:
        lines.append(f"  papers search {published.contexts_name}, which is built with it")
    return lines


def _corpus_needs(corpus: Corpus, workdir: Path) -> list[str]:
    built = is_complete(corpus_directory(corpus.name, workdir))
    vectors, memory = (size_text(corpus.passages * size) for size in (_VECTOR, _BUILD))
    return [
        f"{corpus.name} ({'built' if built else 'not built'}): {corpus.passages:,} passages, about "
        f"{corpus.gigabytes:g} GB on disk and {memory} of memory while it is built, which takes "
        f"about {duration_text(corpus.passages / _RATE)} at {_RATE:,} passages/s (measured on 2 "
        f"busy cores); a dense index of it {vectors} more (float16, 768 dimensions)"
    ]


def _build_corpus(corpus: Corpus, values: flags.FlagValues, workdir: Path) -> None:
    for line in _corpus_needs(corpus, workdir):
        print(f"{line}; licence {corpus.licence}; {_free(workdir)}")
    subset = _subset(corpus.name, values, workdir)
    directory = corpus_directory(corpus.name, workdir, subset)
    started, path = time.monotonic(), None
    if not is_complete(directory):
        path = _corpus_file(corpus.name, values, workdir)
        if path is None:
            raise InputError(
                f"{values.source} and its folders lack, plain or packed: "
                f"{published_name(corpus.file)} ({corpus.file.partition('#')[0]})"
            )
    build_corpus(corpus.name, workdir, path, any_size=values.any_size, subset=subset)
    print(_corpus_line(directory.name, workdir, started))


def _corpus_file(name: str, values: flags.FlagValues, workdir: Path) -> Path | None:
    """Path of a corpus's file, or of its archive; None if the source lacks it."""
    return _downloads(name, values, workdir).get(CORPORA[name].file, unpack=False)


def _subset(corpus: str, values: flags.FlagValues, workdir: Path) -> Subset | None:
    if not (values.first or values.gold_of or values.others):
        return None
    gold = {name: gold_of(name, corpus, workdir) for name in values.gold_of}
    if lacking := [name for name, ids in gold.items() if not ids]:
        raise InputError(
            f"{', '.join(lacking)}: built without gold passages of {corpus}; build it with --gold."
        )
    ids = frozenset[str]().union(*gold.values())
    return Subset(
        first=values.first,
        ids=ids,
        ids_of="+".join(values.gold_of),
        others=values.others,
        seed=values.seed,
    )


def _split_table(built: BuiltSet) -> Table:
    table = Table("split", title=terminal_text(built.name), title_justify="left")
    for name in ("questions", "published", "with gold", "with choices", "answers/question"):
        table.add_column(name, justify="right")
    for name, split in built.splits.items():
        gold = ", ".join(f"{n:,} ({corpus or OWN})" for corpus, n in split.gold.items())
        table.add_row(
            name,
            f"{split.questions:,}",
            f"{split.published:,}" + ("" if split.questions == split.published else " (differs)"),
            gold or "0",
            f"{split.choices:,}",
            f"{split.answers / split.questions:.2f}",
        )
    return table


def _notes(built: BuiltSet, published: PublishedSet, workdir: Path) -> list[str]:
    lines = [f"{pair}: {n:,} questions in both" for pair, n in built.shared.items() if n]
    if built.absent:
        lines.append(f"not built, for want of files: {', '.join(built.absent)}")
    corpus = published.corpus
    if corpus in CORPORA and not is_complete(corpus_directory(corpus, workdir)):
        lines.append(f"the corpus is built by: jaxrag data {corpus} --workdir={workdir}")
    directory = set_directory(built.name, workdir)
    return [*lines, f"{directory}: {size_text(_bytes(directory))}; cite {published.citation}"]


def _corpus_line(name: str, workdir: Path, started: float) -> str:
    seconds, directory = time.monotonic() - started, corpus_directory(name, workdir)
    return f"{directory}: {_corpus_state(name, workdir)}; {seconds:.0f} s"


def _list_sets(workdir: Path) -> Table:
    table = Table("set", "what it is", "published splits", "papers search")
    table.add_column(terminal_text(f"state in {workdir}"))
    for name, published in sorted(SETS.items()):
        splits = ", ".join(f"{split} {count:,}" for split, count in published.splits.items())
        own_corpus = published.corpus not in CORPORA
        corpus = published.contexts_name if own_corpus else published.corpus
        table.add_row(name, published.about, splits, corpus, _set_state(name, workdir))
    return table


def _set_state(name: str, workdir: Path) -> str:
    directory = set_directory(name, workdir)
    if not is_complete(directory):
        return "not built"
    built = BuiltSet.read(directory)
    absent = f", without {', '.join(built.absent)}" if built.absent else ""
    sizes = [f"{split} {part.questions:,}" for split, part in built.splits.items()]
    differs = any(part.questions != part.published for part in built.splits.values())
    return f"built: {', '.join(sizes)}{' (sizes differ)' if differs else ''}{absent}"


def _list_corpora(workdir: Path) -> Table:
    table = Table("corpus", "what it is", "passages", "GB")
    table.add_column(terminal_text(f"state in {workdir}"))
    rows = {
        name: (corpus.about, f"{corpus.passages:,}", f"{corpus.gigabytes:g}")
        for name, corpus in CORPORA.items()
    }
    rows |= {
        published.contexts_name: (
            f"the contexts of {name}, built with it",
            f"about {published.contexts_size:,}" if published.contexts_size else "",
            "",
        )
        for name, published in SETS.items()
        if published.corpus in (OWN, OTHERS, published.contexts_name)
    }
    built = {path.name for path in (workdir / "corpora").glob("*") if is_complete(path)}
    rows |= dict.fromkeys(built - rows.keys(), ("contexts or a part", "", ""))
    for name, cells in sorted(rows.items()):
        table.add_row(terminal_text(name), *cells, _corpus_state(name, workdir))
    return table


def _corpus_state(name: str, workdir: Path) -> str:
    directory = corpus_directory(name, workdir)
    if not is_complete(directory):
        return "not built"
    return f"built: {len(open_corpus(name, workdir)):,} passages, {size_text(_bytes(directory))}"


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _free(workdir: Path) -> str:
    existing = next(path for path in (workdir, *workdir.absolute().parents) if path.is_dir())
    return f"{size_text(shutil.disk_usage(existing).free)} are free in {workdir}"


if __name__ == "__main__":
    script(main)
