"""The table of stored rewards that a bandit is trained from: reading and validation.

A table is a directory:

``config.json``    under ``config``: ``table`` with ``arms``, ``questions`` and ``ids`` (see
                   `ids_hash`), ``encoder``, the identity of the encoder of the questions,
                   ``source``, what the rewards were measured with, and all else that determines
                   them
``rewards.jsonl``  a line per question: ``question_id``, ``part`` ("train" or "test") and, each a
                   list by K = 1 .. arms, ``correct``, ``exact_match``, ``f1`` and ``base`` (the
                   reward before weights and penalties); its text, ``question``, may be missing
``contexts.npy``   float32 [q, d]: the questions' embeddings, in the order of the lines
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jaxrag.core.arrays import load_array
from jaxrag.core.hashing import digest
from jaxrag.core.json_text import parse_json
from jaxrag.core.jsonl_input import InputLine, read_input
from jaxrag.types import InputError

CONFIG, REWARDS, CONTEXTS = "config.json", "rewards.jsonl", "contexts.npy"
COLUMNS = ("base", "correct", "exact_match", "f1")
_AGAIN = "compute the table again"


class RewardTable(NamedTuple):
    """The reward of every question under every arm; arm a, from 0, keeps the a + 1 first rewrites.

    Attributes:
      path: the directory; its name is the table's.
      train: which questions are trained on; the others are tested on.
      contexts: embeddings of the questions.
      base: rewards before weights and penalties.
      correct, exact_match, f1: scores of the answers.
      trained_on: texts of the questions to train on; () if a line of the table has none.
    """

    path: Path
    config: dict[str, Any]
    ids: tuple[str, ...]
    train: Bool[np.ndarray, " q"]
    contexts: Float[np.ndarray, "q d"]
    base: Float[np.ndarray, "q a"]
    correct: Float[np.ndarray, "q a"]
    exact_match: Float[np.ndarray, "q a"]
    f1: Float[np.ndarray, "q a"]
    trained_on: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name in tables and file names."""
        return self.path.name

    @property
    def arms(self) -> int:
        """Rewrites of each question."""
        return self.base.shape[1]

    @property
    def source(self) -> Mapping[str, Any]:
        """Rewriter, order, search and reader of the rewards; empty in old tables."""
        return self.config.get("source", {})

    @property
    def fingerprint(self) -> str:
        """A SHA-256 hex digest of questions, parts, rewards and contexts."""
        hasher = hashlib.sha256(json.dumps([self.ids, self.train.tolist()]).encode())
        for array in (self.contexts, *(getattr(self, name) for name in COLUMNS)):
            hasher.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return hasher.hexdigest()


def read_table(path: str | Path, *, arms: int | None = None) -> RewardTable:
    """Reads and validates the table in a directory; ``arms`` is the expected number, None any.
    InputError, naming file, line and field, if the directory holds no table or an incomplete one,
    another number of arms, values that are not finite, contexts of other questions, or no question
    to train or to test on.
    """
    path = Path(path).absolute()
    config = _config(path)
    count = config["table"]["arms"]
    if arms is not None and count != arms:
        raise InputError(
            f"{path} has rewards for {count} rewrites, but the bandit is set to {arms} arms; set "
            f"arms to {count}, or compute a table of {arms} rewrites."
        )
    lines = _lines(path, count, config["table"])
    columns = {name: np.array([row.fields[name] for row in lines], np.float64) for name in COLUMNS}
    ids = tuple(line.fields["question_id"] for line in lines)
    train = [line for line in lines if line.fields["part"] == "train"]
    texts: tuple[str, ...] = ()
    if all("question" in line.fields for line in train):
        texts = tuple(line.string("question") for line in train)
    is_train = np.array([line.fields["part"] == "train" for line in lines])
    contexts = _contexts(path, len(lines))
    return RewardTable(path, config, ids, is_train, contexts, **columns, trained_on=texts)


def _config(path: Path) -> dict[str, Any]:
    file = path / CONFIG
    if not file.is_file():
        raise InputError(f"{path} is not a reward table: it holds no {CONFIG}.")
    try:
        config = parse_json(file.read_text("utf-8"))["config"]
        arms, _ = config["table"]["arms"], config["encoder"]
        if not (isinstance(arms, int) and arms >= 1):
            raise TypeError(f"table.arms is {arms!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} is not the {CONFIG} of a reward table ({error!r}); {_AGAIN}."
        ) from error
    return config


def ids_hash(ids: Iterable[str]) -> str:
    """A hash of the questions' ids in their order, the order of the contexts' rows."""
    return digest(*ids)


def _lines(path: Path, arms: int, recorded: Mapping[str, Any]) -> list[InputLine]:
    file = path / REWARDS
    if not file.is_file():
        raise InputError(f"{path} is not a reward table: it holds no {REWARDS}.")
    lines, seen = list(read_input(file)), set[str]()
    for line in lines:
        if (part := line.string("part")) not in ("train", "test"):
            raise line.error("part", f"is {part!r}, not 'train' or 'test'; {_AGAIN}")
        if (name := line.string("question_id")) in seen:
            raise line.error("question_id", f"has {name!r} for the second time; {_AGAIN}")
        seen.add(name)
        for name in COLUMNS:
            _check_values(line, name, arms)
    questions = recorded.get("questions", len(lines))
    if len(lines) != questions:
        raise InputError(
            f"{path} is not finished: {REWARDS} has {len(lines)} of {questions} questions; run the "
            "job that computes the table again."
        )
    ids = ids_hash(line.fields["question_id"] for line in lines)
    if recorded.get("ids", ids) != ids:
        raise InputError(
            f"{file} has other questions, or the same in another order (hash {ids[:12]}), than "
            f"{CONTEXTS} (hash {recorded['ids'][:12]}); {_AGAIN}."
        )
    for part in ("train", "test"):
        if not any(line.fields["part"] == part for line in lines):
            raise InputError(
                f"{path} has no question whose part is {part!r}: a bandit is trained on one part "
                "and tested on the other; compute a table with both."
            )
    return lines


def _check_values(line: InputLine, name: str, arms: int) -> None:
    """Refuses a field that is not one finite number for each arm."""
    values = line.items(name)
    if len(values) != arms:
        told = f"is {len(values)} values; {CONFIG} has {arms} rewrites, one value each; {_AGAIN}"
        raise line.error(name, told)
    for k, value in enumerate(values, 1):
        if not isinstance(value, (int, float)) or not np.isfinite(value):
            raise line.error(name, f"for K = {k} is {value!r}; a finite number is needed; {_AGAIN}")


def _contexts(path: Path, questions: int) -> Float[np.ndarray, "q d"]:
    file = path / CONTEXTS
    if not file.is_file():
        raise InputError(f"{path} is not finished: it holds no {CONTEXTS}.")
    try:
        contexts = load_array(file)
    except ValueError as error:
        raise InputError(f"{file} is cut off or is no array ({error}); {_AGAIN}.") from error
    if contexts.ndim != 2 or len(contexts) != questions or not contexts.shape[1]:
        raise InputError(
            f"{file} has shape {contexts.shape}; {REWARDS} has {questions} questions, so "
            f"[{questions}, d] is needed; {_AGAIN}."
        )
    if contexts.dtype.kind != "f" or not np.isfinite(contexts).all():
        row = 1 + int(np.argmin(np.isfinite(contexts).all(1))) if contexts.dtype.kind == "f" else 1
        raise InputError(
            f"{file}: the context of question {row} is not all finite numbers "
            f"({contexts.dtype}); {_AGAIN}."
        )
    return contexts.astype(np.float32)
