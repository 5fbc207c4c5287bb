"""Rollouts of PPO: texts that the policy wrote, with what is learned from them.

What is written depends on the parameters, the seed, the step and the question alone, not on how
questions are batched, nor on whether the run was interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrag.engines.language_model import LanguageModel
from jaxrag.retrieval.manifest import enough_space, replacing
from jaxrag.training.students import Pairs, Student, source_tokens, within
from jaxrag.types import Generation, InputError, Question

TEXTS = "rollouts.jsonl"
"""What the file of texts and rewards is called in the directory of a training."""


class Example(NamedTuple):
    """A question, and what the policy reads of it."""

    question: Question
    source: str


class Reward(Protocol):
    """What texts are worth."""

    def __call__(
        self, questions: Sequence[Question], written: Sequence[Generation]
    ) -> tuple[Sequence[float], Sequence[Mapping[str, Any]]]:
        """A reward and a record of plain JSON of each text.

        Numbers in the records, such as "f1", and truths count as figures, whose means are logged.
        """
        ...


class Rollouts(NamedTuple):
    """The texts of a step; everything by token is padded on the right as ``pairs`` are.

    Attributes:
      pairs: what was read and written.
      scores: the reward of each text.
      logprobs: of each token by the policy that wrote it.
      reference: by the policy that training began with.
      values: the return that was expected before each token.
      advantages: whitened.
      returns: what the values are to learn.
    """

    pairs: Pairs
    scores: Float[Array, " b"]
    logprobs: Float[Array, "b t"]
    reference: Float[Array, "b t"]
    values: Float[Array, "b t"]
    advantages: Float[Array, "b t"]
    returns: Float[Array, "b t"]

    @property
    def where(self) -> Bool[Array, "b t"]:
        """Which tokens are there."""
        return written(self.pairs)


def written(pairs: Pairs) -> Bool[Array, "b t"]:
    """Which tokens of the targets are there."""
    return np.arange(pairs.target.shape[1]) < pairs.target_length[:, None]


def sample(
    model: LanguageModel, sources: Sequence[str], *, tokens: int, seed: int, step: int
) -> list[Generation]:
    """A text for each source, drawn at temperature 1.

    An engine's draws depend on the prompt and the seed, so a source that comes up again in the
    same step is asked with another one.
    """
    turns = [sources[:i].count(source) for i, source in enumerate(sources)]
    found: list[Any] = [None] * len(sources)
    for turn in range(max(turns) + 1):
        places = [i for i, one in enumerate(turns) if one == turn]
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), step), turn)
        some = model.generate(
            [sources[i] for i in places],
            max_new_tokens=tokens,
            temperature=1.0,
            seed=int(jax.random.bits(key)),
        )
        for place, one in zip(places, some, strict=True):
            found[place] = one
    return found


def tokens_of(student: Student, sources: Sequence[str], texts: Sequence[Generation]) -> Pairs:
    """What was read and written as tokens; the very ones that were drawn, not the text's anew.

    Args:
      student: whose lengths are the widths.
      sources: none is longer than ``max_source``, see `jaxrag.training.students.within`.
      texts: of at most ``max_target`` tokens.
    """
    width = student.max_source, student.max_target
    rows = [source_tokens(student, source) for source in sources], [one.tokens for one in texts]
    arrays = []
    for some, size in zip(rows, width, strict=True):
        padded = np.zeros((len(some), size), np.int32)
        for array, row in zip(padded, some, strict=True):
            array[: len(row)] = row
        arrays += [padded, np.array([len(row) for row in some], np.int32)]
    return Pairs(*arrays)


def checked(
    rewards: Sequence[float], questions: Sequence[Question], step: int
) -> Float[np.ndarray, " b"]:
    """The rewards as float32.

    Raises:
      InputError: one is not finite, or their number is another.
    """
    found = np.asarray(rewards, np.float32)
    if found.shape != (len(questions),):
        raise InputError(
            f"Step {step}: the reward function gave rewards of shape {found.shape} for "
            f"{len(questions)} texts; one number for each is needed."
        )
    for reward, question in zip(found.tolist(), questions, strict=True):
        if not np.isfinite(reward):
            raise InputError(
                f"Step {step}: the reward of question {question.id} is {reward}. Training stopped "
                "before it learned from that; mend the reward function, and the same command goes "
                "on from the newest checkpoint."
            )
    return found


def fitted(student: Student, examples: Sequence[Example]) -> list[Example]:
    """The examples with sources that are cut to what the student reads.

    Raises:
      InputError: there is none, or one is empty.
    """
    if not examples:
        raise InputError("There is no question to train on.")
    found = [one._replace(source=within(student, one.source)) for one in examples]
    for one in found:
        if not one.source:
            raise InputError(
                f"Question {one.question.id}: nothing of it is left for the model to read within "
                f"{student.max_source} tokens: raise max_source."
            )
    return found


def means(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of each number in the records, over those that have it."""
    columns: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, bool | int | float):
                columns.setdefault(name, []).append(float(value))
    return {name: float(np.mean(values)) for name, values in columns.items()}


class Texts:
    """rollouts.jsonl: a line for each text of each step.

    Args:
      directory: of the training.
      start: how many steps have been made; lines of later ones, which were lost, go.
    """

    def __init__(self, directory: Path, start: int) -> None:
        self._path = directory / TEXTS
        kept = []
        if self._path.exists():
            whole = self._path.read_text("utf-8").split("\n")[:-1]  # without a torn line
            kept = [line for line in whole if json.loads(line)["step"] <= start]
        directory.mkdir(parents=True, exist_ok=True)
        with replacing(self._path) as stream:
            stream.writelines(f"{line}\n".encode() for line in kept)

    def write(
        self,
        step: int,
        questions: Sequence[Question],
        texts: Sequence[Generation],
        rewards: Float[np.ndarray, " b"],
        records: Sequence[Mapping[str, Any]],
    ) -> None:
        """Adds the texts of a step, counted from 1."""
        lines = [
            {"step": step, "question_id": question.id, "text": text.text,
             "tokens": len(text.tokens), "reward": reward, **record}
            for question, text, reward, record in zip(
                questions, texts, rewards.tolist(), records, strict=True
            )
        ]  # fmt: skip
        with enough_space(self._path), self._path.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
