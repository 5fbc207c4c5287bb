"""Log-probabilities of given continuations, from prompts that are read once each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from jaxrag.engines.local.prefill import Prefill, PrefillJob, PrefillStep
from jaxrag.models.decoder.decoding import score

_TOGETHER = 64  # tokens scored in one call

Continuation = tuple[Int[np.ndarray, " t"], Float[np.ndarray, " t"]]
"""Tokens, and where their log-probabilities go."""


def scored(
    prefill: Prefill, jobs: Sequence[tuple[PrefillJob, Int[np.ndarray, " t"]]]
) -> Iterator[tuple[int, Float[np.ndarray, " t"]]]:
    """The number of each job, as they are done, and its log-probabilities.

    Jobs that read the same are read once: such are continuations of one token to one prompt, the
    words of a judgement for instance.

    Args:
      prefill: what reads.
      jobs: what is read, all but the continuation's last token, and the continuation; ``wanted`` is
        the position before its first token.
    """
    values = [np.zeros(len(tokens), np.float32) for _, tokens in jobs]
    same: dict[PrefillJob, list[int]] = {}
    for number, (job, tokens) in enumerate(jobs):
        if len(tokens):
            same.setdefault(job, []).append(number)
        else:
            yield number, values[number]
    asked, numbers = list(same), list(same.values())
    wanted = [[(jobs[number][1], values[number]) for number in some] for some in numbers]
    for _, reading in prefill.readings(asked):
        while not reading.over:
            step = reading.step()
            _put_in(prefill, step, asked, wanted)
            for read in step.rows:
                if read.done:
                    yield from ((number, values[number]) for number in numbers[read.number])


def _put_in(
    prefill: Prefill,
    step: PrefillStep,
    asked: Sequence[PrefillJob],
    wanted: Sequence[Sequence[Continuation]],
) -> None:
    """The log-probabilities that a step's hidden states give; only those tokens' logits are made.

    Args:
      prefill: whose network it is.
      step: hidden states of some rows.
      asked: what is read.
      wanted: of each of it.
    """
    found: list[tuple[int, int, int, np.ndarray, int]] = []  # row, place in the step, token, where
    for read in step.rows:
        first = asked[read.number].wanted
        found += (
            (read.row - step.first, at - read.start, int(tokens[at - first]), values, at - first)
            for tokens, values in wanted[read.number]
            for at in range(max(first, read.start), read.end)
        )
    for start in range(0, len(found), _TOGETHER):
        part = found[start : start + _TOGETHER]
        rows, places, tokens = np.zeros((3, _TOGETHER), np.int32)
        rows[: len(part)], places[: len(part)] = [one[0] for one in part], [one[1] for one in part]
        tokens[: len(part)] = [one[2] for one in part]
        hidden = step.hidden[rows, places]
        logprobs = np.asarray(score(prefill.decoder, prefill.params, hidden, tokens))
        for (*_, values, at), value in zip(part, logprobs, strict=False):
            values[at] = value
