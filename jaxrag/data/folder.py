"""Data sets in folders of JSONL: queries, training questions, a corpus and gold passages.

``queries.jsonl`` (or ``train.jsonl``, or any other file of the kind): ``{"id", "question",
"answers"}`` and optionally ``choices``. ``corpus.jsonl``: ``{"id", "text"}`` and optionally
``title``. ``qrels.jsonl`` (optional): ``{"query_id", "passage_ids"}``. Further fields are left
alone. A folder is checked line by line and converted once; after that it is read like any other
data set.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jaxrag.data.dataset import Dataset, Labelled, about_questions, read_dataset, write_questions
from jaxrag.data.lines import read_lines
from jaxrag.retrieval.passages import Passages, write_passages
from jaxrag.retrieval.rows import is_complete
from jaxrag.types import InputError, Passage, Question

# Part of what a conversion is called, so that a change of this file's reading makes a new one.
_FORMAT = 1


class GoldCounts(NamedTuple):
    """What became of ``qrels.jsonl`` when the folder was converted.

    Attributes:
      questions: questions that have at least one gold passage.
      missing_passages: gold passages that the searched corpus does not hold, left out.
      questions_without: questions all of whose gold passages were left out.
    """

    questions: int
    missing_passages: int
    questions_without: int


def load(
    source: str | Path,
    directory: str | Path,
    *,
    split: str = "queries",
    corpus: str | Path | None = None,
    limit: int | None = None,
) -> Dataset:
    """Open a folder as a data set; check and convert it under ``directory`` on first use.

    Conversions are kept by the content of the files, so a changed file is converted again.

    Args:
      source: the folder.
      directory: where conversions are kept.
      split: the name of the questions' file without ``.jsonl``: "queries" or "train".
      corpus: the folder whose ``corpus.jsonl`` is searched; ``source`` by default. Over another
        corpus, gold passages that it does not hold are left out and counted (``gold_counts``);
        in the folder's own corpus a gold passage that is missing is an error.
      limit: only the first so many questions.

    Raises:
      InputError: names the file, the line and the field that is wrong.
    """
    root, passages = _convert(Path(source), Path(directory), split, corpus)
    dataset = read_dataset(Path(source).name, root, passages, split=split)
    return dataset if limit is None else _first(dataset, limit)


def gold_counts(
    source: str | Path,
    directory: str | Path,
    *,
    split: str = "queries",
    corpus: str | Path | None = None,
) -> GoldCounts:
    """How many gold passages ``load`` kept and left out, with the same arguments."""
    root, _ = _convert(Path(source), Path(directory), split, corpus)
    return GoldCounts(**about_questions(root))


def _convert(
    source: Path, directory: Path, split: str, corpus: str | Path | None
) -> tuple[Path, Passages]:
    """The directory of the questions and the open corpus, both complete."""
    questions = _file(source, split, "a folder of queries.jsonl, train.jsonl and corpus.jsonl")
    searched = _file(Path(corpus) if corpus else source, "corpus", _CORPUS_HELP)
    qrels = source / "qrels.jsonl"
    corpus_root = directory / f"corpus-{_digest(searched)}"
    if not is_complete(corpus_root):
        _write_corpus(corpus_root, searched)
    passages = Passages.open(corpus_root)
    own = searched.parent.resolve() == source.resolve()
    parts = [_digest(questions), _digest(qrels) if qrels.is_file() else "", passages.identity, own]
    root = directory / f"{split}-{_short(json.dumps(parts))}"
    if not is_complete(root):
        gold = _read_gold(qrels) if qrels.is_file() else {}
        asked = _read_questions(questions)
        _refuse_unknown_queries(source, questions, asked, gold)
        labelled, counts = _label(asked, gold, passages, qrels, own=own)
        write_questions(root, {split: labelled}, about=counts._asdict())
    return root, passages


_CORPUS_HELP = "the passages to search; corpus= names another folder that has them"


def _file(folder: Path, name: str, purpose: str) -> Path:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder ({purpose})")
    path = folder / f"{name}.jsonl"
    if not path.is_file():
        there = ", ".join(sorted(found.name for found in folder.glob("*.jsonl"))) or "no JSONL"
        raise InputError(f"{path}: no such file ({purpose}); the folder has {there}")
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return _short(f"{_FORMAT} {hashlib.file_digest(file, 'sha256').hexdigest()}")


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write_corpus(directory: Path, path: Path) -> None:
    passages = (
        Passage(line.text("id"), line.text("title", optional=True), line.text("text"))
        for line in read_lines(path)
    )
    try:
        write_passages(directory, passages)
    except InputError as error:
        # The writer knows rows and no file; a row is a line.
        message = str(error)
        raise InputError(message if str(path) in message else f"{path}: {message}") from None


def _read_questions(path: Path) -> dict[str, Question]:
    questions: dict[str, Question] = {}
    for line in read_lines(path):
        question = Question(
            id=line.text("id"),
            text=line.text("question"),
            answers=line.texts("answers"),
            choices=line.texts("choices", optional=True),
        )
        if question.id in questions:
            raise line.error("id", f"{question.id!r} is the id of an earlier line too")
        questions[question.id] = question
    if not questions:
        raise InputError(f"{path}: no questions; the file is empty")
    return questions


def _read_gold(path: Path) -> dict[str, tuple[str, ...]]:
    gold: dict[str, tuple[str, ...]] = {}
    for line in read_lines(path):
        query = line.text("query_id")
        if query in gold:
            raise line.error("query_id", f"{query!r} has an earlier line too")
        gold[query] = line.texts("passage_ids")
    return gold


def _refuse_unknown_queries(
    source: Path,
    path: Path,
    questions: Mapping[str, Question],
    gold: Mapping[str, tuple[str, ...]],
) -> None:
    """One ``qrels.jsonl`` serves all of a folder's questions, so all of them count as known."""
    unknown = gold.keys() - questions.keys()
    for other in (source / "queries.jsonl", source / "train.jsonl"):
        if unknown and other != path and other.is_file():
            unknown -= _read_questions(other).keys()
    if unknown:
        raise InputError(
            f"{source / 'qrels.jsonl'}: field 'query_id': {min(unknown)!r} ({len(unknown)} in all)"
            " is the id of no question in the folder"
        )


def _label(
    questions: Mapping[str, Question],
    gold: Mapping[str, tuple[str, ...]],
    passages: Passages,
    qrels: Path,
    *,
    own: bool,
) -> tuple[list[Labelled], GoldCounts]:
    labelled, missing, without = [], 0, 0
    for question in questions.values():
        wanted = tuple(dict.fromkeys(gold.get(question.id, ())))
        held = tuple(passage for passage in wanted if _has(passages, passage))
        if own and held != wanted:
            stranger = next(passage for passage in wanted if passage not in held)
            raise InputError(
                f"{qrels}: field 'passage_ids' of query {question.id!r}: corpus.jsonl beside it"
                f" has no passage {stranger!r}"
            )
        missing += len(wanted) - len(held)
        without += bool(wanted) and not held
        labelled.append(Labelled(question, held))
    return labelled, GoldCounts(sum(bool(one.gold) for one in labelled), missing, without)


def _has(passages: Passages, passage_id: str) -> bool:
    try:
        passages.row_of(passage_id)
    except KeyError:
        return False
    return True


def _first(dataset: Dataset, limit: int) -> Dataset:
    if limit < 1:
        raise InputError(f"limit={limit}: at least one question is needed")
    questions = dataset.questions[:limit]
    gold = {one.id: dataset.gold[one.id] for one in questions if one.id in dataset.gold}
    identity = _short(f"{dataset.identity} {limit}")
    return dataset._replace(questions=questions, gold=gold, identity=identity)
