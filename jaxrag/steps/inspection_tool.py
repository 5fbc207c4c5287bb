"""Tool for a model's attentions and hidden states, batched and stored as `jaxrag.steps.tools`."""

from __future__ import annotations

import functools
import io
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.core.hashing import canonical
from jaxrag.engines.local.inspection import InspectableModel, Inspection
from jaxrag.engines.prompts import prompt_size
from jaxrag.engines.scheduler import Operation, Request
from jaxrag.models.decoder.inspection import StatePart
from jaxrag.types import Prompt


class EndState(NamedTuple):
    """The hidden state at the end token, the last of a continuation's ``tokens`` tokens."""

    tokens: int
    state: Float[np.ndarray, " d"]


class InspectionTool:
    """A model with attentions and hidden states, called with one continuation at a time."""

    def __init__(self, model: InspectableModel) -> None:
        self._model = model
        self._state = functools.cache(self._state_operation)

    def look(self, prompt: Prompt, continuation: str) -> Request:
        """Awaits to the `Inspection` of a continuation; its state is the middle layer's."""
        return Request(self._inspection, (prompt, continuation))

    def state(
        self, prompt: Prompt, continuation: str, *, layer: int | None, part: StatePart = "residual"
    ) -> Request:
        """Awaits to a continuation's `EndState` at ``layer``, from 0; None: the middle one."""
        return Request(self._state(layer, part), (prompt, continuation))

    @functools.cached_property
    def _inspection(self) -> Operation:
        model = self._model
        return Operation(
            name="inspect",
            identity=canonical({"model": model.identity}),
            run=lambda pairs: model.inspect([p for p, _ in pairs], [c for _, c in pairs]),
            key=canonical,
            encode=encode_inspection,
            decode=decode_inspection,
            cost=lambda pair, seen: {"llm_scores": 1, "scored_tokens": len(seen.logprobs)},
            size=lambda pair: prompt_size(*pair),
        )

    def _state_operation(self, layer: int | None, part: StatePart) -> Operation:
        model = self._model
        options = {} if part == "residual" else {"part": part}  # stored ones keep their key
        return Operation(
            name="hidden_state",
            identity=canonical({"model": model.identity, "layer": layer, **options}),
            run=lambda pairs: [
                EndState(len(seen.logprobs), seen.state)
                for seen in model.inspect(
                    [p for p, _ in pairs], [c for _, c in pairs], layer=layer, part=part, ended=True
                )
            ],
            key=canonical,
            encode=lambda ended: encode_arrays(np.int64(ended.tokens), ended.state),
            decode=_decode_end_state,
            cost=lambda pair, ended: {"llm_scores": 1, "scored_tokens": ended.tokens},
            size=lambda pair: prompt_size(*pair),
        )


def encode_arrays(*arrays: Any) -> bytes:
    """Arrays in the store's format."""
    buffer = io.BytesIO()
    for array in arrays:
        np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def decode_arrays(data: bytes) -> list[np.ndarray]:
    """The inverse of `encode_arrays`."""
    buffer, arrays = io.BytesIO(data), []
    while buffer.tell() < len(data):
        arrays.append(np.load(buffer, allow_pickle=False))
    return arrays


def encode_inspection(seen: Inspection) -> bytes:
    """An inspection in the store's format."""
    return encode_arrays(np.frombuffer(seen.text.encode(), np.uint8), *seen[1:])


def decode_inspection(data: bytes) -> Inspection:
    """The inverse of `encode_inspection`."""
    text, *arrays = decode_arrays(data)
    return Inspection(text.tobytes().decode(), *arrays)


def _decode_end_state(data: bytes) -> EndState:
    tokens, state = decode_arrays(data)
    return EndState(int(tokens), state)
