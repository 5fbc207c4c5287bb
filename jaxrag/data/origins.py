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
    records = []
    for benchmark in _benchmarks(settings):
        published = named_set(benchmark.name)
        split = benchmark.split or published.evaluated
        records.append(
            {
                "set": benchmark.name,
                "split": split,
                "split_questions": published.splits[split],
                "corpus": benchmark.corpus or published.corpus,
                "licence": published.licence,
                "source": published.source,
            }
        )
    return records


def _benchmarks(settings: DataSettings) -> list[Benchmark]:
    """The published sets among the settings, each once."""
    if isinstance(settings, Draw):
        sources = (settings.source, settings.test_source)
        benchmarks = [
            one for source in sources if source is not None for one in _benchmarks(source)
        ]
        return list(dict.fromkeys(benchmarks))
    return [settings] if isinstance(settings, Benchmark) else []


def unbuilt(settings: DataSettings, cache: Path) -> list[Unbuilt]:
    """Published sets and corpora of some settings that are not built under ``cache``."""
    missing = []
    for data in _benchmarks(settings):
        published = named_set(data.name)
        if not is_complete(set_directory(data.name, cache)):
            sizes = ", ".join(f"{split} {count:,}" for split, count in published.splits.items())
            marked = named_part(data.corpus) and published.gold  # files that mark gold passages
            command = f"jaxrag data {data.name} --workdir={cache}{' --gold' if marked else ''}"
            missing.append(Unbuilt(f"set {data.name}", f"questions: {sizes}", command))
        corpus = data.corpus or published.corpus
        own = corpus in (OWN, OTHERS, published.contexts_name)  # built with the set
        if not own and "/" not in corpus and not is_complete(corpus_directory(corpus, cache)):
            command = f"jaxrag data {build_arguments(corpus)} --workdir={cache}"
            missing.append(Unbuilt(f"corpus {corpus}", _size(corpus), command))
    return list(dict.fromkeys(missing))


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
