"""A language model as a method holds it: asked one prompt at a time.

Each call for one question becomes a `Request`, which the scheduler batches with those of the other
questions and answers from the store where it can.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrag.core.hashing import canonical
from jaxrag.engines.language_model import DrawingModel, LanguageModel, StreamingModel
from jaxrag.engines.prompts import PromptEncoder, encoder_of
from jaxrag.engines.requests import Operation, Request
from jaxrag.types import Generation, InputError, Prompt


class LanguageModelTool:
    """A language model, asked one prompt at a time."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._operation = functools.cache(self._make_operation)

    @property
    def identity(self) -> str:
        """The model's."""
        return self._model.identity

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int = 0,
    ) -> Request:
        """Awaits to the prompt's `Generation`."""
        given = seed if temperature == 0 else None  # those of all seeds go to the model together
        operation = self._operation(max_new_tokens, temperature, tuple(stop), given)
        return Request(operation, (prompt, seed))

    def logprob(self, prompt: Prompt, continuation: str) -> Request:
        """Awaits to the log-probability of each token of ``continuation``, float32 [t]."""
        return Request(self._scoring, (prompt, continuation))

    def room(self, prompt: Prompt, *, max_new_tokens: int) -> int:
        """Tokens left in the model beside a prompt and its answer; below 0, how many are too many.

        It is at hand at once: nothing is awaited, computed or stored.

        Raises:
          InputError: the model does not tell its tokenizer and its most tokens (some servers), or
            the prompt is none for it.
        """
        if self._encoder is None:
            raise InputError("The model does not tell its tokenizer and its most tokens.")
        return self._encoder.left(prompt, room=max_new_tokens)

    @functools.cached_property
    def _encoder(self) -> PromptEncoder | None:
        return encoder_of(self._model)

    def _make_operation(
        self, max_new_tokens: int, temperature: float, stop: tuple[str, ...], seed: int | None
    ) -> Operation:
        """Of payloads (prompt, seed): of one ``seed``, or of any where that is None."""
        settings: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "stop": stop,
        }
        named = settings if seed is None else {**settings, "seed": seed}
        return Operation(
            name="generate",
            identity=canonical({"model": self._model.identity, **named}),
            run=lambda asked: _generate(self._model, asked, settings),
            key=lambda asked: canonical(asked if seed is None else asked[0]),
            encode=_encode_generation,
            decode=_decode_generation,
            cost=lambda asked, generation: {
                "llm_calls": 1,
                "prompt_tokens": generation.prompt_tokens,
                "new_tokens": len(generation.tokens),
            },
            size=lambda asked: _prompt_size(asked[0]),
            submit=(lambda asked: model.submit(asked[0], seed=asked[1], **settings))
            if isinstance(model := self._model, StreamingModel)
            else None,
        )

    @functools.cached_property
    def _scoring(self) -> Operation:
        return Operation(
            name="logprob",
            identity=canonical({"model": self._model.identity}),
            run=lambda pairs: self._model.logprob([p for p, _ in pairs], [c for _, c in pairs]),
            key=canonical,
            encode=encode_array,
            decode=decode_array,
            cost=lambda pair, array: {"llm_scores": 1, "scored_tokens": len(array)},
            size=lambda pair: _prompt_size(pair[0]) + len(pair[1]),
            submit=(lambda pair: model.submit_logprob(*pair))
            if isinstance(model := self._model, StreamingModel)
            else None,
        )


def _generate(
    model: LanguageModel, asked: Sequence[tuple[Prompt, int]], settings: dict[str, Any]
) -> list[Generation]:
    """Continues each prompt with its seed: those of several together if the model can draw."""
    by_seed: dict[int, list[int]] = defaultdict(list)
    for number, (_, seed) in enumerate(asked):
        by_seed[seed].append(number)
    if len(by_seed) > 1 and isinstance(model, DrawingModel):
        prompts, seeds = zip(*asked, strict=True)
        return model.draw(prompts, seeds, **settings)
    found: dict[int, Generation] = {}
    for seed, numbers in by_seed.items():
        prompts = [asked[number][0] for number in numbers]
        generations = model.generate(prompts, seed=seed, **settings)
        found |= zip(numbers, generations, strict=True)
    return [found[number] for number in range(len(asked))]


def _prompt_size(prompt: Prompt) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(m.content) for m in prompt)


def _encode_generation(generation: Generation) -> bytes:
    return canonical(dataclasses.asdict(generation)).encode()


def _decode_generation(data: bytes) -> Generation:
    fields = json.loads(data)
    fields["tokens"], fields["logprobs"] = tuple(fields["tokens"]), tuple(fields["logprobs"])
    return Generation(**fields)


def encode_array(array: np.ndarray) -> bytes:
    """An array as the store keeps it, float32."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array, np.float32), allow_pickle=False)
    return buffer.getvalue()


def decode_array(data: bytes) -> np.ndarray:
    """What `encode_array` wrote."""
    return np.load(io.BytesIO(data), allow_pickle=False)
