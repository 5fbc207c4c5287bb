"""Published sets of questions by name, over the corpora that papers search, once they are built."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from jaxrag.data.corpora import CORPORA, open_corpus
from jaxrag.data.dataset import (
    OTHERS,
    OWN,
    Dataset,
    read_dataset,
    read_questions,
    split_sizes,
    without_own,
)
from jaxrag.data.sets import PublishedSet, named_set
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A published set of questions that `jaxrag data` built.

    Only the questions used are read, and of the corpus only its manifest and the hashes of its ids;
    identities are those that the manifests record.

    Attributes:
      name: of the set, such as "nq"; a key of `jaxrag.data.sets.SETS`.
      split: "train", "dev", "test" or another split of the set; "" is the one that papers evaluate.
      corpus: what is searched: "" is the corpus that papers search, "contexts" the passages that
        the set brings, "other-contexts" these without the question's own; else as `open_corpus`
        takes it. Gold passages are those known for this corpus, or for the one that it is a part
        of; those that it lacks count as not found.
      first: only the first questions of the split; 0 is all.
    """

    name: str
    split: str = ""
    corpus: str = ""
    first: int = 0

    def __post_init__(self) -> None:
        splits = named_set(self.name).splits
        if self.split and self.split not in splits:
            raise InputError(
                f"data.split is {self.split!r}; {self.name} has {', '.join(sorted(splits))}."
            )
        if self.first < 0:
            raise InputError(f"data.first is {self.first}; it must be 0 (all) or more.")

    def load(self, cache: Path) -> Dataset:
        """Opens the set and its corpus below ``cache``.

        InputError if one of them is not built (the message has the command), or the set has not
        this split or too few questions.
        """
        published = named_set(self.name)
        directory, split = set_directory(self.name, cache), self.split or published.evaluated
        if not is_complete(directory):
            raise InputError(f"the set {self.name} is not built: {_build(self.name, cache)}")
        count = split_sizes(directory).get(split)
        if count is None:
            raise InputError(
                f"the set {self.name} was built without its split {split!r}, whose files were not "
                f"there: {_build(self.name, cache)}"
            )
        if self.first > count:
            raise InputError(
                f"data.first is {self.first:,}, but {split} of {self.name} has {count:,} questions."
            )
        if count != published.splits[split]:
            _log.warning(
                "%s %s has %s questions here, the published split %s",
                *(self.name, split, f"{count:,}", f"{published.splits[split]:,}"),
            )
        name, passages = self._open_corpus(published, cache)
        rows = range(self.first) if self.first else None
        dataset = read_dataset(self.name, directory, passages, split=split, corpus=name, rows=rows)
        return without_own(dataset) if (self.corpus or published.corpus) == OTHERS else dataset

    def _open_corpus(self, published: PublishedSet, cache: Path) -> tuple[str, Passages]:
        """The corpus, and the name under which gold passages know it."""
        name = self.corpus or published.corpus
        name = published.contexts_name if name in (OWN, OTHERS) else name
        passages, name = open_corpus(name, cache), Path(name).name
        if name in CORPORA and len(passages) != CORPORA[name].passages:
            _log.warning(
                "the corpus %s has %s passages here, the published one %s",
                *(name, f"{len(passages):,}", f"{CORPORA[name].passages:,}"),
            )
        names = (published.contexts_name, *CORPORA)
        name = next((prefix for prefix in names if f"{name}-".startswith(f"{prefix}-")), name)
        return "" if name == names[0] else name, passages


def set_directory(name: str, cache: Path) -> Path:
    """Where a built set lies."""
    return Path(cache) / "sets" / name


def gold_of(name: str, corpus: str, cache: Path) -> set[str]:
    """Ids of a corpus's passages that are gold in any split of a set; InputError if not built."""
    named_set(name)
    directory = set_directory(name, cache)
    if not is_complete(directory):
        raise InputError(f"the set {name} is not built: {_build(name, cache)}")
    return {
        gold.id
        for split, count in split_sizes(directory).items()
        for labelled in read_questions(directory, split, range(count))
        for gold in labelled.gold
        if gold.corpus == corpus and gold.grade > 0
    }


def _build(name: str, cache: Path) -> str:
    return (
        f"build it with `jaxrag data {name} --workdir={cache}` (which downloads it; "
        "add --source=DIR for files at hand)."
    )
