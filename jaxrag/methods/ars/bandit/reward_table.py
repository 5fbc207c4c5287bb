"""The stored rewards that a selector is trained from: reading and checking them.

A table is a directory, filled once with a language model and then read by any number of trainings:

``config.json``    under ``config``: ``table`` with ``arms`` (and ``questions``), ``encoder``, the
                   identity of what embedded the questions, and all else that determines it
``rewards.jsonl``  a line per question: ``question_id``, ``part`` ("train" or "test") and, each a
                   list by K = 1 .. arms, ``correct``, ``exact_match``, ``f1`` and ``base`` (the
                   reward before weights and penalties)
``contexts.npy``   float32 [q, d]: the questions' embeddings, in the order of the lines
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jaxrag.types import InputError

CONFIG, REWARDS, CONTEXTS = "config.json", "rewards.jsonl", "contexts.npy"
COLUMNS = ("base", "correct", "exact_match", "f1")
_AGAIN = "compute the table again"


class RewardTable(NamedTuple):
    """What every question pays under every arm; arm a, from 0, keeps the a + 1 best rewrites.

    Attributes:
      path: the directory; its name is the table's.
      config: what determines it.
      ids: of the questions.
      train: which questions are trained on; the others are tested on.
      contexts: embeddings of the questions.
      base: rewards before weights and penalties.
      correct, exact_match, f1: scores of the answers.
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

    @property
    def name(self) -> str:
        """What it is called in tables and file names."""
        return self.path.name

    @property
    def arms(self) -> int:
        """Rewrites of each question."""
        return self.base.shape[1]

    @property
    def encoder(self) -> Any:
        """Identity of what embedded the questions."""
        return self.config["encoder"]

    @property
    def fingerprint(self) -> str:
        """A SHA-256 hex digest of what was read: questions, parts, rewards and contexts."""
        whole = hashlib.sha256(json.dumps([self.ids, self.train.tolist()]).encode())
        for array in (self.contexts, *(getattr(self, name) for name in COLUMNS)):
            whole.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()


def read_table(path: str | Path, *, arms: int | None = None) -> RewardTable:
    """Reads a table and checks that it is whole.

    Args:
      path: its directory.
      arms: how many arms the caller is set to; None takes what there are.

    Raises:
      InputError: it is none, unfinished or truncated; it has another number of arms, rewards or
        contexts that are no finite numbers, contexts for other questions, or no question to train
        or to test on. Names file, line and field.
    """
    path = Path(path).absolute()
    config = _config(path)
    told = config["table"].get("arms")
    if arms is not None and told != arms:
        raise InputError(
            f"{path} has rewards for {told} rewrites, but the selector is set to {arms} arms; set "
            f"arms to {told}, or compute a table of {arms} rewrites."
        )
    lines = _lines(path / REWARDS, told)
    _check_whole(path, config["table"].get("questions"), lines)
    columns = {name: np.array([line[name] for line in lines], np.float64) for name in COLUMNS}
    train = np.array([line["part"] == "train" for line in lines])
    ids = tuple(line["question_id"] for line in lines)
    return RewardTable(path, config, ids, train, _contexts(path, len(lines)), **columns)


def _config(path: Path) -> dict[str, Any]:
    file = path / CONFIG
    if not file.is_file():
        raise InputError(f"{path} is not a reward table: it holds no {CONFIG}.")
    try:
        config = json.loads(file.read_text("utf-8"))["config"]
        arms, _ = config["table"]["arms"], config["encoder"]
        if not (isinstance(arms, int) and arms >= 1):
            raise TypeError(f"table.arms is {arms!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} is not the {CONFIG} of a reward table ({error!r}); {_AGAIN}."
        ) from error
    return config


def _lines(file: Path, arms: int) -> list[dict[str, Any]]:
    if not file.is_file():
        raise InputError(f"{file.parent} is not a reward table: it holds no {file.name}.")
    texts = file.read_bytes().split(b"\n")
    if texts.pop():
        raise InputError(
            f"{file}:{len(texts) + 1}: the last line is cut off; let the job that computes the "
            "table finish."
        )
    lines = []
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
            assert isinstance(line["question_id"], str), "question_id is not text"
            assert line["part"] in ("train", "test"), f"part is {line['part']!r}"
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise InputError(
                f"{file}:{number}: not a question of a reward table ({error!r}); {_AGAIN}."
            ) from error
        for name in COLUMNS:
            _check_values(line.get(name), arms, f"{file}:{number}: {name}")
        lines.append(line)
    return lines


def _check_values(values: Any, arms: int, where: str) -> None:
    """Refuses what is not one finite number for each arm."""
    if not isinstance(values, list) or len(values) != arms:
        told = f"{len(values)} values" if isinstance(values, list) else repr(values)
        raise InputError(
            f"{where} is {told}; the table's {CONFIG} says {arms} rewrites, one value for each; "
            f"{_AGAIN}."
        )
    for k, value in enumerate(values, 1):
        if not isinstance(value, (int, float)) or not np.isfinite(value):
            raise InputError(
                f"{where} for K = {k} is {value!r}; a reward is a finite number; {_AGAIN}."
            )


def _check_whole(path: Path, questions: int | None, lines: list[dict[str, Any]]) -> None:
    if questions is not None and len(lines) != questions:
        raise InputError(
            f"{path} is not finished: {REWARDS} has {len(lines)} of {questions} questions; run the "
            "job that computes the table again."
        )
    ids = [line["question_id"] for line in lines]
    if len(set(ids)) < len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise InputError(f"{path / REWARDS} has question {twice!r} twice; {_AGAIN}.")
    for part in ("train", "test"):
        if not any(line["part"] == part for line in lines):
            raise InputError(
                f"{path} has no question whose part is {part!r}: a selector is trained on one part "
                "and tested on the other; compute a table with both."
            )


def _contexts(path: Path, questions: int) -> Float[np.ndarray, "q d"]:
    file = path / CONTEXTS
    if not file.is_file():
        raise InputError(f"{path} is not finished: it holds no {CONTEXTS}.")
    try:
        contexts = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{file} is cut off or is no array ({error}); {_AGAIN}.") from error
    if contexts.ndim != 2 or len(contexts) != questions or not contexts.shape[1]:
        raise InputError(
            f"{file} has shape {contexts.shape}; {REWARDS} has {questions} questions, so "
            f"[{questions}, d] is wanted; {_AGAIN}."
        )
    if contexts.dtype.kind != "f" or not np.isfinite(contexts).all():
        row = 1 + int(np.argmin(np.isfinite(contexts).all(1))) if contexts.dtype.kind == "f" else 1
        raise InputError(
            f"{file}: the context of question {row} is not all finite numbers "
            f"({contexts.dtype}); {_AGAIN}."
        )
    return contexts.astype(np.float32)
