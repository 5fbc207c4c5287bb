"""Published sets and corpora of some settings: for records, and what is not built, for plans."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from jaxrag.data.benchmark import Benchmark, set_directory
from jaxrag.data.corpora import CORPORA, build_arguments, corpus_directory, named_part
from jaxrag.data.dataset import OTHERS, OWN, DataSettings
from jaxrag.data.draw import Draw
from jaxrag.data.sets import named_set
from jaxrag.retrieval.corpus.rows import is_complete

_VECTOR = 768 * 2  # bytes of a passage's vector, float16, in an index of the usual encoders


class Unbuilt(NamedTuple):
    """A set or corpus that is missing: its name, what it takes, and the command that builds it."""

    name: str
    size: str
    command: str


def origins(settings: DataSettings) -> list[dict[str, str | int]]:
    """What the published sets among the settings are, for a run's record."""
    found = []
    for one in _benchmarks(settings):
        published = named_set(one.name)
        split = one.split or published.evaluated
        found.append(
            {
                "set": one.name,
                "split": split,
                "split_questions": published.splits[split],
                "corpus": one.corpus or published.corpus,
                "licence": published.licence,
                "source": published.source,
            }
        )
    return found


def _benchmarks(settings: DataSettings) -> list[Benchmark]:
    """The published sets among the settings, each once."""
    if isinstance(settings, Draw):
        sources = (settings.source, settings.test_source)
        found = [one for source in sources if source is not None for one in _benchmarks(source)]
        return list(dict.fromkeys(found))
    return [settings] if isinstance(settings, Benchmark) else []


def unbuilt(settings: DataSettings, cache: Path) -> list[Unbuilt]:
    """Published sets and corpora of some settings that are not built under ``cache``."""
    found = []
    for one in _benchmarks(settings):
        published = named_set(one.name)
        if not is_complete(set_directory(one.name, cache)):
            sizes = ", ".join(f"{split} {count:,}" for split, count in published.splits.items())
            marked = named_part(one.corpus) and published.gold  # files that mark gold passages
            command = f"jaxrag data {one.name} --workdir={cache}{' --gold' if marked else ''}"
            found.append(Unbuilt(f"set {one.name}", f"questions: {sizes}", command))
        corpus = one.corpus or published.corpus
        own = corpus in (OWN, OTHERS, published.contexts_name)  # built with the set
        if not own and "/" not in corpus and not is_complete(corpus_directory(corpus, cache)):
            command = f"jaxrag data {build_arguments(corpus)} --workdir={cache}"
            found.append(Unbuilt(f"corpus {corpus}", _size(corpus), command))
    return list(dict.fromkeys(found))


def _size(name: str) -> str:
    if part := named_part(name):
        return f"the gold passages of {part.gold_of} and {part.others:,} others"
    if name not in CORPORA:
        return "of unknown size"
    corpus = CORPORA[name]
    vectors = corpus.passages * _VECTOR / 1e9
    return (
        f"{corpus.passages:,} passages, about {corpus.gigabytes:g} GB on disk; vectors of 768 "
        f"components, float16, take {vectors:.1f} GB on disk and, searched exactly, in memory"
    )
