"""Rollouts of PPO: texts sampled from the policy, with their rewards and advantages.

A text depends only on the parameters, the seed, the step and the source, not on batching or on
interruptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxrag.engines.language_model import LanguageModel
from jaxrag.training.loop import append_steps, keep_steps
from jaxrag.training.student.student import Student, TokenPairs, pad, source_tokens, truncate
from jaxrag.types import Generation, InputError, Question

ROLLOUTS = "rollouts.jsonl"
"""File of texts and rewards in the directory of a training."""


class PPOExample(NamedTuple):
    """A question, and the source text that the policy reads for it."""

    question: Question
    source: str


class Reward(Protocol):
    """A reward function of texts."""

    def __call__(
        self, questions: Sequence[Question], texts: Sequence[Generation]
    ) -> tuple[Sequence[float], Sequence[Mapping[str, Any]]]:
        """The reward of each text, and a record of it as plain JSON.

        The means of numbers and booleans in the records, such as "f1", are logged as metrics.
        """
        ...


class Rollouts(NamedTuple):
    """The texts of a step; token arrays are right-padded like ``pairs``.

    Attributes:
      pairs: sources and sampled texts.
      scores: the reward of each text.
      logprobs: log-probability of each token under the policy that sampled it.
      reference: log-probability under the initial policy.
      values: predicted return before each token.
      advantages: whitened.
      returns: targets of the values.
    """

    pairs: TokenPairs
    scores: Float[Array, " b"]
    logprobs: Float[Array, "b t"]
    reference: Float[Array, "b t"]
    values: Float[Array, "b t"]
    advantages: Float[Array, "b t"]
    returns: Float[Array, "b t"]

    @property
    def where(self) -> Bool[Array, "b t"]:
        """Mask of the texts' tokens, without padding."""
        return target_mask(self.pairs)


def target_mask(pairs: TokenPairs) -> Bool[Array, "b t"]:
    """Mask of the targets' tokens, without padding."""
    return np.arange(pairs.target.shape[1]) < pairs.target_length[:, None]


def sample_texts(
    model: LanguageModel, sources: Sequence[str], *, tokens: int, seed: int, step: int
) -> list[Generation]:
    """A text for each source, sampled at temperature 1; a repeated source gets another seed."""
    turns = [sources[:i].count(source) for i, source in enumerate(sources)]
    texts: list[Any] = [None] * len(sources)
    for turn in range(max(turns) + 1):
        positions = [i for i, t in enumerate(turns) if t == turn]
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), step), turn)
        some = model.generate(
            [sources[i] for i in positions],
            max_new_tokens=tokens,
            temperature=1.0,
            seed=int(jax.random.bits(key)),
        )
        for position, text in zip(positions, some, strict=True):
            texts[position] = text
    return texts


def token_pairs(
    student: Student, sources: Sequence[str], texts: Sequence[Generation]
) -> TokenPairs:
    """Sources, truncated before, and texts as the tokens that were sampled, not tokenised again."""
    rows = [source_tokens(student, source) for source in sources]
    tokens = [text.tokens for text in texts]
    return TokenPairs(*pad(rows, student.max_source), *pad(tokens, student.max_target))


def checked_rewards(
    rewards: Sequence[float], questions: Sequence[Question], step: int
) -> Float[np.ndarray, " b"]:
    """The rewards as float32; InputError if one is not finite, or not each question has one."""
    values = np.asarray(rewards, np.float32)
    if values.shape != (len(questions),):
        raise InputError(
            f"Step {step}: the reward function gave rewards of shape {values.shape} for "
            f"{len(questions)} texts; one number for each is needed."
        )
    for reward, question in zip(values.tolist(), questions, strict=True):
        if not np.isfinite(reward):
            raise InputError(
                f"Step {step}: the reward of question {question.id} is {reward}. Training stopped "
                "before learning from it; fix the reward function, and the same command resumes "
                "from the newest checkpoint."
            )
    return values


def truncated_examples(student: Student, examples: Sequence[PPOExample]) -> list[PPOExample]:
    """The examples, sources cut to ``max_source``; InputError without any, or for an empty one."""
    if not examples:
        raise InputError("There is no question to train on.")
    cut = [example._replace(source=truncate(student, example.source)) for example in examples]
    for example in cut:
        if not example.source:
            raise InputError(
                f"Question {example.question.id}: its source is empty when cut to "
                f"{student.max_source} tokens: raise max_source."
            )
    return cut


def mean_metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of each number in the records, over the records that have it."""
    columns: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, bool | int | float):
                columns.setdefault(name, []).append(float(value))
    return {name: float(np.mean(values)) for name, values in columns.items()}


class RolloutFile:
    """rollouts.jsonl in the directory of a training: a line for each text of each step.

    The first step that is written removes the lines of later ones, lost in an interruption.
    """

    def __init__(self, directory: Path) -> None:
        self._path, self._is_open = directory / ROLLOUTS, False

    def write(
        self,
        step: int,
        questions: Sequence[Question],
        texts: Sequence[Generation],
        rewards: Float[np.ndarray, " b"],
        records: Sequence[Mapping[str, Any]],
    ) -> None:
        """Adds the texts of a step, counted from 1."""
        if not self._is_open:
            keep_steps(self._path, until=step - 1)
            self._is_open = True
        lines = [
            {"step": step, "question_id": question.id, "text": text.text,
             "tokens": len(text.tokens), "reward": reward, **record}
            for question, text, reward, record in zip(
                questions, texts, rewards.tolist(), records, strict=True
            )
        ]  # fmt: skip
        append_steps(self._path, lines)
