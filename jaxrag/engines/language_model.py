"""What every language model of jaxrag can do."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from jaxrag.types import Generation, Prompt


class LanguageModel(Protocol):
    """A model that generates and scores text, many prompts a call.

    A result depends only on its own prompt and the settings, never on the other prompts of the
    call or their order.
    """

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines results: weights, dtype, chat template, ..."""
        ...

    @property
    def gives_logprobs(self) -> bool:
        """Whether generations carry log-probabilities and `logprob` works."""
        ...

    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int = 0,
    ) -> list[Generation]:
        """Continues each prompt; ``temperature`` 0 is greedy."""
        ...

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """Natural-log probability of each token of each continuation, float32 [t]."""
        ...


@runtime_checkable
class DrawingModel(LanguageModel, Protocol):
    """A model that reads a prompt once for several texts that are drawn from it."""

    def draw(
        self,
        prompts: Sequence[Prompt],
        seeds: Sequence[int],
        *,
        max_new_tokens: int,
        temperature: float,
        stop: Sequence[str] = (),
    ) -> list[Generation]:
        """Continues each prompt with its own seed, to what `generate` makes with that seed."""
        ...


@runtime_checkable
class StreamingModel(LanguageModel, Protocol):
    """A model that takes prompts one by one while it works on others, such as a server."""

    def submit(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int = 0,
    ) -> Future[Generation]:
        """Continues one prompt in the background."""
        ...

    def submit_logprob(self, prompt: Prompt, continuation: str) -> Future[np.ndarray]:
        """Scores one continuation in the background."""
        ...


class ModelSettings(Protocol):
    """Settings of a language model: a checkpoint or a server, and the engine that runs it."""

    @property
    def name(self) -> str:
        """For tables."""
        ...

    @property
    def checkpoint(self) -> str | None:
        """The weights that are loaded, "" where none are named; None for a server's."""
        ...

    @property
    def dtype(self) -> str:
        """What the weights are loaded in; "" is the default of the device."""
        ...

    def load(self, cache: Path) -> LanguageModel:
        """Loads the model; compiled programs go under ``cache``."""
        ...
