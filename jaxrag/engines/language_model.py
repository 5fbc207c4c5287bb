"""The interface of language models."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol, Required, TypedDict, Unpack, runtime_checkable

import numpy as np

from jaxrag.core.checks import check_limits, check_positive, check_range
from jaxrag.types import Generation, Prompt


class DecodingKeywords(TypedDict, total=False):
    """Keyword arguments of `LanguageModel.generate`; see `DecodingOptions`."""

    max_new_tokens: Required[int]
    temperature: float
    stop: Sequence[str]
    seed: int | Sequence[int]
    repetition_penalty: float


@dataclasses.dataclass(frozen=True)
class DecodingOptions:
    """Decoding options of a call; InputError if a number is out of range.

    Attributes:
      max_new_tokens: limit of each generation, at least 1.
      temperature: 0 is greedy decoding; above 0, tokens are sampled.
      stop: strings that end a generation; its text is cut before the first of them.
      seed: seed of the samples: one for all prompts, or one for each.
      repetition_penalty: divides positive logits of tokens that occur in the prompt or the answer
        so far, and multiplies negative ones; 1 is none. Log-probabilities are those without it.
    """

    max_new_tokens: int
    temperature: float = 0.0
    stop: Sequence[str] = ()
    seed: int | Sequence[int] = 0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        check_limits(max_new_tokens=self.max_new_tokens)
        check_range(temperature=self.temperature)
        check_positive(repetition_penalty=self.repetition_penalty)

    def seeds(self, count: int) -> list[int]:
        """The seed of each of ``count`` prompts."""
        return [self.seed] * count if isinstance(self.seed, int) else list(self.seed)


class LanguageModel(Protocol):
    """A model that generates and scores text, many prompts per call.

    A result depends on its own prompt, options and seed only, not on the others of the call.
    """

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines results: weights, dtype, chat template, ..."""
        ...

    @property
    def gives_logprobs(self) -> bool:
        """Whether generations carry log-probabilities and, see `gives_scores`, `logprob` works."""
        ...

    def generate(
        self, prompts: Sequence[Prompt], **options: Unpack[DecodingKeywords]
    ) -> list[Generation]:
        """Continues each prompt; options as in `DecodingOptions`.

        InputError, before anything is computed, if a prompt is empty or leaves no room for
        ``max_new_tokens``, or an option is out of range.
        """
        ...

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """Natural-log probability of each token of each continuation, float32 [t].

        Prompt and continuation are tokenised separately, see `PromptEncoder.with_continuation`.
        """
        ...


def gives_scores(model: LanguageModel) -> bool:
    """Whether `LanguageModel.logprob` works; some servers only give those of what they write."""
    return bool(getattr(model, "gives_scores", model.gives_logprobs))


@runtime_checkable
class GradualModel(LanguageModel, Protocol):
    """A model whose generations of one call end one after the other."""

    def generate_each(
        self, prompts: Sequence[Prompt], **options: Unpack[DecodingKeywords]
    ) -> Iterator[tuple[int, Generation]]:
        """Yields each prompt's index and its generation as it ends; options as in `generate`."""
        ...


@runtime_checkable
class StreamingModel(LanguageModel, Protocol):
    """A model that batches by itself and takes prompts one by one, such as a server."""

    def submit(self, prompt: Prompt, **options: Unpack[DecodingKeywords]) -> Future[Generation]:
        """Continues one prompt in the background."""
        ...

    def submit_logprob(self, prompt: Prompt, continuation: str) -> Future[np.ndarray]:
        """Scores one continuation in the background."""
        ...


@runtime_checkable
class ModelSettings(Protocol):
    """Settings of a language model: a checkpoint or a server, and the engine that runs it."""

    @property
    def name(self) -> str:
        """Name in tables."""
        ...

    @property
    def checkpoint(self) -> str | None:
        """The weights to load, "" where none are named; None for a server's."""
        ...

    @property
    def dtype(self) -> str:
        """Data type of the weights; "" is the device's default."""
        ...

    def load(self, cache: Path) -> LanguageModel:
        """Loads the model; compiled programs go under ``cache``."""
        ...
