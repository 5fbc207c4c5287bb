"""Attentions, entropies and hidden states of the local engine's decoder.

On one device a pair's result is bit-identical whatever else is in the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from jaxrag.engines.local.prefill import Prefill, PrefillJob, group_equal
from jaxrag.engines.prompts import PromptEncoder
from jaxrag.models.cache import Cache, place
from jaxrag.models.decoder.inspection import StatePart, inspect, predict
from jaxrag.models.decoder.network import Decoder
from jaxrag.types import InputError, Prompt

_PREDICTED = 64  # tokens whose probabilities are computed in one call


class Inspection(NamedTuple):
    """Internals of the decoder for a prompt of p tokens and a continuation of t tokens.

    Attributes:
      text: prompt and continuation as the model reads them.
      spans: start and end of each of the p + t tokens in ``text``, in characters; of a token that
        is a part of a character, that character's.
      entropies, logprobs: of the predictions of the continuation's tokens, in nats, and the
        natural-log probability of each, float32.
      attention: weights of the last layer, mean over heads, from each of the continuation's tokens
        to all p + t tokens; rows sum to 1, and are 0 after their own token. float32.
      state: of the last token at one layer, float32: the residual stream, or its MLP's output.
    """

    text: str
    spans: Int[np.ndarray, "n 2"]
    entropies: Float[np.ndarray, " t"]
    logprobs: Float[np.ndarray, " t"]
    attention: Float[np.ndarray, "t n"]
    state: Float[np.ndarray, " d"]


@runtime_checkable
class InspectableModel(Protocol):
    """A language model that returns attentions and hidden states; only the local engine does."""

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines results."""
        ...

    def inspect(
        self,
        prompts: Sequence[Prompt],
        continuations: Sequence[str],
        *,
        layer: int | None = None,
        part: StatePart = "residual",
        ended: bool = False,
    ) -> list[Inspection]:
        """Attentions, entropies and a hidden state of each continuation, see `Inspection`.

        Args:
          prompts, continuations: as in `LanguageModel.logprob`.
          layer: of the hidden state, from 0; by default the middle one, L // 2 - 1 of L.
          part: which state of the layer.
          ended: whether the end token follows each continuation.

        InputError if a pair does not fit, or there is no such layer.
        """
        ...


class InspectionPair(NamedTuple):
    """Tokens of a prompt and a continuation; text and spans as in `Inspection`."""

    text: str
    spans: Int[np.ndarray, "n 2"]
    prompt: tuple[int, ...]
    added: tuple[int, ...]


def read_pair(
    encode: PromptEncoder, prompt: Prompt, continuation: str, *, ended: bool
) -> InspectionPair:
    """Tokenises a prompt and a continuation separately, as for log-probabilities.

    InputError if they do not fit, or the end token is requested and there is none.
    """
    tokenizer = encode.tokenizer
    if ended and tokenizer.eos_token is None:
        raise InputError("The tokenizer names no end token (eos_token), whose state is needed.")
    continuation += str(tokenizer.eos_token) if ended else ""
    tokens, added = encode.with_continuation(prompt, continuation)
    text, _, first = encode.with_spans(prompt)
    last = tokenizer(continuation, add_special_tokens=False, return_offsets_mapping=True)
    shifted = ((a + len(text), b + len(text)) for a, b in last["offset_mapping"])
    spans = np.array([*first, *shifted], np.int32).reshape(-1, 2)
    return InspectionPair(text + continuation, spans, tuple(tokens), tuple(added))


def inspections(
    prefill: Prefill,
    pairs: Sequence[InspectionPair],
    slots: Sequence[int],
    layer: int,
    part: StatePart = "residual",
) -> Iterator[tuple[int, Inspection]]:
    """Yields the index and the `Inspection` of each pair, as they are done.

    ``slots`` are of each pair's cache: of its prompt, and `continuation_width` tokens after it.
    """
    same = group_equal(
        PrefillJob(
            pair.prompt,
            len(pair.prompt) - 1,
            n,
            prefill.decoder.config.is_long(len(pair.prompt) + len(pair.added)),
        )
        for pair, n in zip(pairs, slots, strict=True)
    )
    numbers = list(same.values())
    for _, reading in prefill.readings(list(same)):
        rows = _InspectionRows(prefill, reading.decoder, pairs, layer, part)
        while not reading.over:
            step = reading.step()
            done = [(row.row, i) for row in step.rows if row.done for i in numbers[row.number]]
            for start in range(0, len(done), prefill.rows):
                some = done[start : start + prefill.rows]
                if len(rows.numbers) + len(some) > prefill.rows:
                    yield from rows.run()
                rows.enter(step.cache, some)
        yield from rows.run()


def continuation_width(pair: InspectionPair, chunk: int) -> int:
    """Padded number of tokens after the prefilled ones: the prompt's last and the continuation."""
    return -(-(len(pair.added) + 1) // chunk) * chunk


class _InspectionRows:
    """Pairs whose prompts have been prefilled, and their caches."""

    def __init__(
        self,
        prefill: Prefill,
        decoder: Decoder,
        pairs: Sequence[InspectionPair],
        layer: int,
        part: StatePart,
    ) -> None:
        self.numbers: list[int] = []
        self._prefill, self._decoder = prefill, decoder
        self._pairs, self._layer, self._part = pairs, np.int32(layer), part
        self._cache: Cache | None = None

    def enter(self, cache: Cache, done: Sequence[tuple[int, int]]) -> None:
        """Copies the caches of prefilled prompts; ``done`` has their rows and pair indices."""
        if self._cache is None:
            slots = cache[0][1].shape[-2]
            self._cache = self._prefill.empty(self._prefill.rows, slots)
        sources, rows = np.zeros((2, self._prefill.rows), np.int32)
        sources[: len(done)] = [row for row, _ in done]
        rows[: len(done)] = len(self.numbers) + np.arange(len(done))
        self._cache = place(self._cache, cache, sources, rows, np.int32(len(done)))
        self.numbers += [number for _, number in done]

    def run(self) -> Iterator[tuple[int, Inspection]]:
        """Runs the continuations, and frees all rows."""
        numbers, self.numbers = self.numbers, []
        if not numbers:
            return
        pairs = [self._pairs[number] for number in numbers]
        chunk, rows = self._prefill.chunk, self._prefill.rows
        tokens = np.zeros((rows, max(continuation_width(pair, chunk) for pair in pairs)), np.int32)
        starts = np.zeros(rows, np.int32)
        for row, pair in enumerate(pairs):
            inputs = (pair.prompt[-1], *pair.added)
            tokens[row, : len(inputs)], starts[row] = inputs, len(pair.prompt) - 1
        seen = [
            self._chunk(pairs, tokens[:, at : at + chunk], starts, at)
            for at in range(0, tokens.shape[1], chunk)
        ]
        for row, (number, pair) in enumerate(zip(numbers, pairs, strict=True)):
            yield number, _joined(pair, [part[row] for part in seen if row in part])

    def _chunk(
        self, pairs: Sequence[InspectionPair], tokens: np.ndarray, starts: np.ndarray, at: int
    ) -> dict[int, _InspectedRow]:
        """Runs a chunk that begins at ``at``; results by row, of rows with tokens in it."""
        prefill, put = self._prefill, self._prefill.put
        assert self._cache is not None, "no prompts have been entered"
        inside, self._cache = inspect(
            self._decoder,
            prefill.params,
            self._cache,
            put(tokens),
            put(starts + at),
            self._layer,
            part=self._part,
        )
        lengths = {row: min(len(p.added) + 1 - at, prefill.chunk) for row, p in enumerate(pairs)}
        lengths = {row: length for row, length in lengths.items() if length > 0}
        predicted = self._predicted(pairs, inside.hidden, at, lengths)
        attention, state = np.asarray(inside.attention), np.asarray(inside.state)
        return {
            row: _InspectedRow(
                attention[row, :length, : len(pairs[row].spans)],
                state[row, length - 1],
                *predicted[row],
            )
            for row, length in lengths.items()
        }

    def _predicted(
        self, pairs: Sequence[InspectionPair], hidden: Any, at: int, lengths: dict[int, int]
    ) -> dict[int, np.ndarray]:
        """By row, log-probabilities and entropies [2 t] of the tokens that a chunk predicts."""
        counts = {row: min(n, len(pairs[row].added) - at) for row, n in lengths.items()}
        positions = [(row, i) for row, count in counts.items() for i in range(count)]
        predicted = {row: np.zeros((2, count), np.float32) for row, count in counts.items()}
        for first in range(0, len(positions), _PREDICTED):
            part = positions[first : first + _PREDICTED]
            rows, places, targets = np.zeros((3, _PREDICTED), np.int32)
            rows[: len(part)], places[: len(part)] = zip(*part, strict=True)
            targets[: len(part)] = [pairs[row].added[at + i] for row, i in part]
            states = hidden[rows, places]
            values = np.array(predict(self._prefill.decoder, self._prefill.params, states, targets))
            for (row, i), value in zip(part, values.T, strict=False):
                predicted[row][:, i] = value
        return predicted


class _InspectedRow(NamedTuple):
    """Results of one row in a chunk."""

    attention: np.ndarray
    state: np.ndarray
    logprobs: np.ndarray
    entropies: np.ndarray


def _joined(pair: InspectionPair, parts: Sequence[_InspectedRow]) -> Inspection:
    """Concatenates chunks, without the attention of the prompt's last token."""
    attention = np.concatenate([part.attention for part in parts])[1:]
    logprobs = np.concatenate([part.logprobs for part in parts])
    entropies = np.concatenate([part.entropies for part in parts])
    return Inspection(pair.text, pair.spans, entropies, logprobs, attention, parts[-1].state)
