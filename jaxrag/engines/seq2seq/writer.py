"""From batches of sources to the tokens of their answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Float

from jaxrag.engines.seq2seq.batches import ANSWER, SourceBatch, padded_length
from jaxrag.models.decoder.decoding import TokenSampling
from jaxrag.models.sharding import divisible_sharding
from jaxrag.models.t5.beams import LengthPenalty, beam_search
from jaxrag.models.t5.decoding import T5Limits, extend_answers, score, start_answers
from jaxrag.models.t5.network import T5
from jaxrag.types import InputError

_STEPS = 8  # tokens between two looks for stop strings

Written = tuple[list[int], list[float]]
"""An answer's tokens and their log-probabilities."""


class Seq2SeqNetwork(NamedTuple):
    """A T5, its parameters, and the devices they are spread over; None is one device."""

    model: T5
    params: Any
    mesh: Mesh | None


@dataclasses.dataclass(frozen=True)
class Beams:
    """How answers are searched for.

    Attributes:
      count: answers followed at once; 1 takes the most probable token each time, or draws it.
      length_penalty: exponent of the length by which log-probabilities are divided.
      early_stopping: whether the search ends once ``count`` answers have.
      min_new_tokens: before so many no answer ends.
    """

    count: int = 1
    length_penalty: float = 1.0
    early_stopping: bool = False
    min_new_tokens: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or self.min_new_tokens < 0:
            raise InputError(
                f"beams is {self.count} and min_new_tokens {self.min_new_tokens}: at least 1 and "
                "at least 0 are wanted."
            )


class Seq2SeqWriter:
    """Runs batches through the programs of `jaxrag.models.t5.decoding` and `t5_beams`.

    Args:
      network: what answers.
      ends: tokens that end an answer.
      beams: how answers are searched for.
    """

    def __init__(self, network: Seq2SeqNetwork, *, ends: Sequence[int], beams: Beams) -> None:
        self._network, self._beams, self._kinds = network, beams, len(ends)
        self._ends = np.zeros(network.model.config.vocab_size, np.bool_)
        self._ends[list(ends)] = True

    def write(
        self,
        batch: SourceBatch,
        count: int,
        drawn: tuple[float, int],
        stopped: Callable[[Sequence[int]], bool] | None,
    ) -> Iterator[Written]:
        """Answers a batch token by token, up to ``count`` of them.

        Args:
          batch: sources.
          count: most new tokens.
          drawn: temperature and seed.
          stopped: whether an answer has ended, from its tokens so far, end tokens aside; None
            where none does.
        """
        (model, params, _), limits = self._network, self._limits(count)
        seeds = np.full_like(batch.numbers, drawn[1] & 0xFFFFFFFF)
        sampling = TokenSampling(jnp.float32(drawn[0]), self._put(seeds), self._put(batch.numbers))
        tokens, where = self._put(batch.tokens), self._put(batch.where)
        now = start_answers(model, params, tokens, where, slots=padded_length(count, ANSWER))
        steps, over = jnp.int32(_STEPS if stopped else count), False
        while not over:
            now = extend_answers(model, params, now, steps, limits, sampling)
            if stopped:
                ended = [stopped(row) for row in _cut(now.tokens, now.made)]
                now = now._replace(finished=self._put(np.asarray(now.finished) | ended))
            over = int(now.step) >= count or bool(now.finished.all())
        return zip(_cut(now.tokens, now.made), _cut(now.logprobs, now.made), strict=True)

    def beam_search(self, batch: SourceBatch, count: int) -> Iterator[Written]:
        """Answers a batch by beam search, with up to ``count`` tokens."""
        model, params, _ = self._network
        how = self._beams
        tokens, logprobs, made = beam_search(
            model,
            params,
            self._put(batch.tokens),
            self._put(batch.where),
            self._limits(count),
            LengthPenalty(jnp.float32(how.length_penalty), jnp.bool_(how.early_stopping)),
            beams=how.count,
            slots=padded_length(count, ANSWER),
            kinds=self._kinds,
        )
        return zip(_cut(tokens, made), _cut(logprobs, made), strict=True)

    def score(self, batch: SourceBatch) -> Float[np.ndarray, "b t"]:
        """Log-probabilities of a batch's targets."""
        model, params, _ = self._network
        arrays = map(self._put, (batch.tokens, batch.where, batch.targets))
        return np.asarray(score(model, params, *arrays))

    def _limits(self, count: int) -> T5Limits:
        least = jnp.int32(self._beams.min_new_tokens)
        return T5Limits(least, jnp.int32(count), jnp.asarray(self._ends))

    def _put(self, array: np.ndarray) -> jax.Array:
        """An array with an entry for each row, on the devices."""
        mesh = self._network.mesh
        return jax.device_put(
            array, divisible_sharding(P("data"), array.shape, mesh) if mesh else None
        )


def _cut(rows: Any, made: Any) -> list[list[Any]]:
    """The first entries of each row, as many as it has made."""
    return [
        row[:count]
        for row, count in zip(np.asarray(rows).tolist(), np.asarray(made).tolist(), strict=True)
    ]
