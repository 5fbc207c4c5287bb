"""Data sets from directories of JSONL files.

- ``queries.jsonl``, ``train.jsonl`` or another file of questions: ``{"id", "question", "answers"}``
  and optionally ``choices``, whose letters may stand for answers. Without ``answers``, questions
  serve to compare retrievers.
  A folder with a corpus alone has no questions: it can be searched and asked.
- ``corpus.jsonl``: ``{"id", "text"}`` and optionally ``title``.
- ``qrels.jsonl``, optional: gold passages as ``{"query_id", "passage_ids"}``.

Other fields are ignored, unless a line has one in place of those above, such as "answer", "target"
or "options", which is refused. The files are checked line by line and converted to TFDS data sets
once for each content; their hashes are kept in the cache, so that an unchanged file is not read
again.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from jaxrag.core.checks import check_local
from jaxrag.core.hashing import HashedFile, hashed_once, read_as_hashed
from jaxrag.core.jsonl_input import read_input, well_named
from jaxrag.data.conversion import (
    QuestionFiles,
    convert_corpus,
    convert_questions,
    short_hash,
)
from jaxrag.data.dataset import Dataset, GoldPassage, LabelledQuestion
from jaxrag.data.sets import SETS
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.types import InputError, Passage, Question

# Part of the names of converted directories: increase it when the conversion changes.
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Folder(QuestionFiles):
    """Questions and corpus of a directory of JSONL files.

    Attributes:
      path: the directory.
      split: name of the file of questions without ``.jsonl``: "queries" or "train".
      corpus: directory whose ``corpus.jsonl`` is searched; "" is ``path``. Gold passages that
        another directory's corpus lacks count as not found; in its own a missing one is an error.
      task, labels: as in `jaxrag.data.conversion.QuestionFiles`.
    """

    split: str = "queries"

    def load(self, cache: Path) -> Dataset:
        """Loads the directory; the first time, checks and converts it under ``cache``.

        Raises:
          InputError: naming the file, line and field that is wrong; or a gold answer does not fit
            the task.
        """
        check_local({"path": self.path, "corpus": self.corpus})
        source = Path(self.path)
        if self.split == "queries" and [*source.glob("*.jsonl")] == [source / "corpus.jsonl"]:
            passages = _converted_corpus(source / "corpus.jsonl", Path(cache))
            return Dataset(source.name, (), passages, {}, passages.identity)
        root, passages = _convert(Path(self.path), Path(cache), self.split, self.corpus)
        return self.converted(Path(self.path).name, root, passages)


def _convert(source: Path, cache: Path, split: str, corpus: str) -> tuple[Path, Passages]:
    """The directory of converted questions, and the converted corpus."""
    questions = _file(source, split, "a folder of queries.jsonl, train.jsonl and corpus.jsonl")
    searched = _file(Path(corpus or source), "corpus", _CORPUS_HELP)
    qrels = source / "qrels.jsonl"
    records = cache / "digests"
    asked = hashed_once(questions, records)
    there = os.path.lexists(qrels)  # a link to nothing is no reason to go without
    judged = [hashed_once(_file(source, "qrels", "gold passages"), records)] if there else []
    passages = _converted_corpus(searched, cache)
    own = searched.parent.resolve() == source.resolve()
    parts = [_key(asked), "".join(map(_key, judged)), passages.identity, own]

    def labelled() -> Iterable[LabelledQuestion]:
        gold = _read_gold(qrels) if judged else {}
        parsed = _read_questions(questions)
        _check_gold_questions(source, questions, parsed, gold)
        found = [_label(question, gold.get(question.id, ())) for question in parsed.values()]
        if own:
            _check_gold_passages(found, passages, qrels)
        return found

    def read() -> Iterable[LabelledQuestion]:
        return read_as_hashed(labelled(), [asked, *judged])

    root = convert_questions(cache, split, short_hash(json.dumps(parts)), read)
    return root, passages


def _converted_corpus(file: Path, cache: Path) -> Passages:
    found = hashed_once(file, cache / "digests")
    return convert_corpus(
        cache, _key(found), file, lambda: read_as_hashed(_passages(file), [found])
    )


_CORPUS_HELP = "the passages to search; data.corpus can name another folder"


def _file(folder: Path, name: str, purpose: str) -> Path:
    if not folder.is_dir():
        published = (
            f". $JAXRAG_DATA names the folder above it; the published set needs none: "
            f"--config.data={folder.name}"
        )
        raise InputError(
            f"{folder}: no such folder ({purpose}){published if folder.name in SETS else ''}"
        )
    path = folder / f"{name}.jsonl"
    if not path.is_file():
        present = ", ".join(sorted(found.name for found in folder.glob("*.jsonl"))) or "no JSONL"
        raise InputError(f"{path}: no such file ({purpose}); the folder has {present}")
    return path


def _key(file: HashedFile) -> str:
    return short_hash(f"{_FORMAT} {file.sha256}")


def _passages(path: Path) -> Iterator[Passage]:
    for line in well_named(read_input(path), "title"):
        title = line.string("title", optional=True)
        yield Passage(line.string("id"), title, line.string("text"))


def _read_questions(path: Path) -> dict[str, Question]:
    questions: dict[str, Question] = {}
    for line in well_named(read_input(path), "answers", "choices"):
        question = Question(
            id=line.string("id"),
            text=line.string("question"),
            answers=line.answers("answers") if "answers" in line.fields else (),
            choices=line.strings("choices", optional=True),
        )
        if question.id in questions:
            raise line.error("id", f"{question.id!r} is the id of an earlier line too")
        questions[question.id] = question
    if not questions:
        raise InputError(f"{path}: no questions; the file is empty")
    return questions


def _read_gold(path: Path) -> dict[str, tuple[str, ...]]:
    """Ids of gold passages by question id."""
    gold: dict[str, tuple[str, ...]] = {}
    for line in read_input(path):
        query = line.string("query_id")
        if query in gold:
            raise line.error("query_id", f"{query!r} has an earlier line too")
        gold[query] = line.strings("passage_ids")
    return gold


def _check_gold_questions(
    source: Path,
    path: Path,
    questions: Mapping[str, Question],
    gold: Mapping[str, tuple[str, ...]],
) -> None:
    """Refuses gold passages of a question that is in no file of the folder."""
    unknown = gold.keys() - questions.keys()
    for other in (source / "queries.jsonl", source / "train.jsonl"):
        if unknown and other != path and other.is_file():
            unknown -= _read_questions(other).keys()
    if unknown:
        raise InputError(
            f"{source / 'qrels.jsonl'}: field 'query_id': {min(unknown)!r} ({len(unknown)} in all)"
            " is the id of no question in the folder"
        )


def _label(question: Question, gold: Iterable[str]) -> LabelledQuestion:
    return LabelledQuestion(question, tuple(map(GoldPassage, dict.fromkeys(gold))))


def _check_gold_passages(
    labelled: Iterable[LabelledQuestion], passages: Passages, qrels: Path
) -> None:
    for question, gold in labelled:
        there = passages.has([one.id for one in gold])
        if not all(there):
            unknown = gold[there.index(False)]
            raise InputError(
                f"{qrels}: field 'passage_ids' of query {question.id!r}: corpus.jsonl beside it"
                f" has no passage {unknown.id!r}"
            )
