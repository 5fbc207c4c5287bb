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
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from jaxrag.core.checks import check_local
from jaxrag.core.jsonl_input import read_input, well_named
from jaxrag.data.conversion import QuestionFiles, folder_corpus
from jaxrag.data.dataset import Dataset, GoldPassage, LabelledQuestion
from jaxrag.data.sets import SETS
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.types import InputError, Question


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

        InputError names the file, line and field that is wrong, or a gold answer that does not fit.
        """
        check_local({"path": self.path, "corpus": self.corpus})
        source, cache = Path(self.path), Path(cache)
        corpus_alone = [*source.glob("*.jsonl")] == [source / "corpus.jsonl"]
        if self.split == "queries" and corpus_alone:
            passages = folder_corpus(source / "corpus.jsonl", cache)
            return Dataset(source.name, (), passages, {}, passages.identity)
        questions, searched = self.files()
        there = os.path.lexists(source / "qrels.jsonl")  # a link to nothing is there, too
        judged = [_file(source, "qrels", "gold passages")] if there else []
        passages = folder_corpus(searched, cache)
        own_corpus = searched.parent.resolve() == source.resolve()

        def labelled() -> Iterable[LabelledQuestion]:
            gold = _read_gold(judged[0]) if judged else {}
            parsed = _read_questions(questions)
            _check_gold_questions(source, questions, parsed, gold)
            labels = [
                LabelledQuestion(q, tuple(map(GoldPassage, dict.fromkeys(gold.get(q.id, ())))))
                for q in parsed.values()
            ]
            if own_corpus:
                _check_gold_passages(labels, passages, source / "qrels.jsonl")
            return labels

        form = "folder with its corpus" if own_corpus else "folder"
        files = [questions, *judged]
        return self.converted(source.name, cache, files, labelled, passages, form=form)

    def files(self) -> tuple[Path, Path]:
        """The files of questions and of passages; InputError if one is not there."""
        questions = _file(Path(self.path), self.split, _FOLDER_HELP)
        return questions, _file(Path(self.corpus or self.path), "corpus", _CORPUS_HELP)


_FOLDER_HELP = "a folder of queries.jsonl, train.jsonl and corpus.jsonl, as jaxrag import makes it"
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
        present = ", ".join(sorted(file.name for file in folder.glob("*.jsonl"))) or "no JSONL"
        raise InputError(f"{path}: no such file ({purpose}); the folder has {present}")
    return path


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
    source: Path, path: Path, questions: Mapping[str, Question], gold: Mapping[str, tuple[str, ...]]
) -> None:
    """Refuses gold passages of a question that is in no file of the folder."""
    unknown = gold.keys() - questions.keys()
    for file in (source / "queries.jsonl", source / "train.jsonl"):
        if unknown and file != path and file.is_file():
            unknown -= _read_questions(file).keys()
    if unknown:
        raise InputError(
            f"{source / 'qrels.jsonl'}: field 'query_id': {min(unknown)!r} ({len(unknown)} in all)"
            " is the id of no question in the folder"
        )


def _check_gold_passages(
    labelled: Iterable[LabelledQuestion], passages: Passages, qrels: Path
) -> None:
    for question, gold in labelled:
        present = passages.has([passage.id for passage in gold])
        if not all(present):
            unknown = gold[present.index(False)]
            raise InputError(
                f"{qrels}: field 'passage_ids' of query {question.id!r}: corpus.jsonl beside it"
                f" has no passage {unknown.id!r}"
            )
