"""Questions that are both trained on and evaluated: found by normalised text, refused or left out.

Two questions are the same if their texts are, after lower case and without punctuation, articles
and repeated blanks (`jaxrag.text.answers.normalize`). Of each text 8 bytes are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from jaxrag.core.arrays import load_array
from jaxrag.core.durable_files import atomic_write
from jaxrag.core.hashing import hash64
from jaxrag.data.benchmark import Benchmark, set_directory
from jaxrag.data.dataset import Dataset, DataSettings, read_questions, split_sizes
from jaxrag.data.sets import named_set
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.text.answers import normalize
from jaxrag.types import InputError, Question

Leakage = Literal["refuse", "drop", "keep"]
"""What happens to training questions that are evaluated, too: an error, they are left out of the
training, or they are trained on knowingly. The setting is recorded."""

TRAINED_ON = "trained_on.npy"
"""In the directory of a checkpoint: hashes of the questions that it was trained on."""

_SHOWN = 5
_log = logging.getLogger("jaxrag")

T = TypeVar("T")


def question_hash(text: str) -> int:
    """Hash of a question's normalised text, or of the text itself if nothing is left of it."""
    return hash64(normalize(text) or text)


class QuestionSet(NamedTuple):
    """Ascending unsigned 64-bit hashes of questions' normalised texts, and their name."""

    name: str
    hashes: np.ndarray


def question_set(name: str, texts: Iterable[str]) -> QuestionSet:
    """The set of some questions' texts, which are read once."""
    return QuestionSet(name, np.unique(np.fromiter(map(question_hash, texts), np.uint64)))


def evaluated_sets(
    evaluated: Iterable[Dataset], training: Iterable[DataSettings] = (), cache: Path | None = None
) -> list[QuestionSet]:
    """All questions that a training must not see: those of the data that its job evaluates.

    Of each published set among the ``training`` data that is built in the ``cache``, the split that
    papers evaluate counts as well.
    """
    sets = [
        question_set(f"the evaluated data {dataset.label}", (q.text for q in dataset.questions))
        for dataset in evaluated
    ]
    for settings in training:
        if isinstance(settings, Benchmark) and cache is not None:
            split = named_set(settings.name).evaluated
            directory = set_directory(settings.name, cache)
            count = split_sizes(directory).get(split, 0) if is_complete(directory) else 0
            rows = read_questions(directory, split, range(count))
            texts = (row.question.text for row in rows)
            if count:
                sets.append(question_set(f"{settings.name} {split}, which papers evaluate", texts))
    return sets


def without_leaks(
    training: Sequence[T],
    texts: Iterable[str],
    evaluated: Iterable[QuestionSet],
    *,
    name: str,
    leakage: Leakage,
    field: str = "config.leakage",
) -> list[T]:
    """The training examples to use; ``texts`` has the question of each.

    ``name`` of the data and ``field`` of the setting are for messages. InputError if some questions
    are ``evaluated``, too, and ``leakage`` is "refuse"; or none is left.
    """
    texts = list(texts)
    hashes = np.fromiter(map(question_hash, texts), np.uint64, len(texts))
    leaked = np.zeros(len(texts), bool)
    for tested in evaluated:
        shared = np.isin(hashes, tested.hashes)
        if shared.any() and leakage == "refuse":
            raise InputError(
                f"{shared.sum():,} of {len(texts):,} training questions of {name} are questions of "
                f"{tested.name}, too, by normalised text:{_first(texts, shared)}\nTrain on another "
                f"split, leave them out with --{field}=drop, or train on them knowingly with "
                f"--{field}=keep."
            )
        if shared.any():
            action = "left out of the training" if leakage == "drop" else "trained on knowingly"
            count = f"{shared.sum():,} of {len(texts):,} questions of {name}"
            _log.warning("%s are questions of %s, too: %s", count, tested.name, action)
        leaked |= shared
    if leakage == "keep":
        return list(training)
    kept = [example for example, shared in zip(training, leaked, strict=True) if not shared]
    if training and not kept:
        raise InputError(f"All questions of {name} are evaluated, too: none is left to train on.")
    return kept


def dataset_without_leaks(
    dataset: Dataset, evaluated: Iterable[QuestionSet], leakage: Leakage
) -> Dataset:
    """The data set to train on, without the questions that are evaluated, too (`without_leaks`)."""
    questions, texts = dataset.questions, (question.text for question in dataset.questions)
    kept = without_leaks(questions, texts, evaluated, name=dataset.label, leakage=leakage)
    return dataset._replace(questions=tuple(kept))


def _first(texts: Sequence[str], rows: np.ndarray) -> str:
    """A few of some texts, a line each; ``rows`` (texts,) says which."""
    return "".join(f"\n  {texts[row]}" for row in np.flatnonzero(rows)[:_SHOWN])


def check_evaluation(
    questions: Sequence[Question],
    checkpoints: Sequence[tuple[str, str]],
    *,
    name: str,
    leakage: Leakage,
) -> None:
    """Checks that checkpoints were not trained on the questions that are evaluated with them.

    ``checkpoints`` are pairs of a setting and the directory that it names; one without a record of
    what it was trained on is not checked. InputError if one was trained on some of the questions,
    unless ``leakage`` is "keep".
    """
    for setting, directory in checkpoints:
        file = Path(directory).expanduser() / TRAINED_ON
        if not directory or not file.is_file():
            continue
        texts = [question.text for question in questions]
        seen = np.isin(np.fromiter(map(question_hash, texts), np.uint64), _read_hashes(file))
        if not seen.any():
            continue
        message = (
            f"{setting} {directory} was trained on {seen.sum():,} of the {len(texts):,} "
            f"questions of {name} that are evaluated, by normalised text:{_first(texts, seen)}"
        )
        if leakage != "keep":
            raise InputError(
                f"{message}\nUse a checkpoint that was trained on other questions, or evaluate it "
                "knowingly with --config.leakage=keep."
            )
        _log.warning("%s", message)


def write_trained_on(checkpoint: Path, texts: Iterable[str], *, begun_with: str = "") -> None:
    """Records the questions that a checkpoint, and the one it ``begun_with``, were trained on."""
    hashes = question_set("", texts).hashes
    before = Path(begun_with).expanduser() / TRAINED_ON
    if begun_with and before.is_file():
        hashes = np.union1d(hashes, _read_hashes(before))
    with atomic_write(checkpoint / TRAINED_ON) as stream:
        np.save(stream, hashes, allow_pickle=False)


def _read_hashes(file: Path) -> np.ndarray:
    """The record of the questions that a checkpoint was trained on."""
    try:
        hashes = load_array(file)
        if hashes.dtype == np.uint64:
            return hashes
        error = f"it holds {hashes.dtype}"
    except ValueError as reason:
        error = reason
    raise InputError(
        f"{file} is damaged ({error}): which questions the checkpoint was trained on is unknown. "
        "Train it again, or delete the file to use it without this check."
    )
