"""Log-probabilities of given continuations; each prompt is read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from jaxrag.engines.local.prefill import Prefill, PrefillJob, PrefillStep, group_equal
from jaxrag.models.decoder.decoding import score

_TOGETHER = 64  # tokens scored in one call


def scored(
    prefill: Prefill, jobs: Sequence[tuple[PrefillJob, Int[np.ndarray, " t"]]]
) -> Iterator[tuple[int, Float[np.ndarray, " t"]]]:
    """Yields the index and the log-probabilities of each job, as they are done.

    A job is what is read (prompt and continuation without its last token; ``wanted`` is the
    position before the continuation) and the continuation. Equal texts are read once.
    """
    values = [np.zeros(len(tokens), np.float32) for _, tokens in jobs]
    yield from ((i, values[i]) for i, (_, tokens) in enumerate(jobs) if not len(tokens))
    nonempty = [i for i, (_, tokens) in enumerate(jobs) if len(tokens)]
    same = group_equal(jobs[i][0] for i in nonempty)
    distinct = list(same)
    numbers = [[nonempty[place] for place in places] for places in same.values()]
    targets = [[(jobs[i][1], values[i]) for i in some] for some in numbers]
    for _, reading in prefill.readings(distinct):
        while not reading.over:
            step = reading.step()
            _score_step(prefill, step, distinct, targets)
            for read in step.rows:
                if read.done:
                    yield from ((i, values[i]) for i in numbers[read.number])


def _score_step(
    prefill: Prefill,
    step: PrefillStep,
    jobs: Sequence[PrefillJob],
    targets: Sequence[Sequence[tuple[Int[np.ndarray, " t"], Float[np.ndarray, " t"]]]],
) -> None:
    """Fills in the log-probabilities that a step's hidden states predict, and computes no others.

    ``targets`` are, for each job, its continuations and the arrays for their log-probabilities.
    """
    # where its hidden state is, token, array, index in the array
    entries: list[tuple[tuple[int, int], int, np.ndarray, int]] = []
    for read in step.rows:
        first = jobs[read.number].wanted
        entries += (
            (step.index(read, at), int(tokens[at - first]), values, at - first)
            for tokens, values in targets[read.number]
            for at in range(max(first, read.start), read.end)
        )
    for start in range(0, len(entries), _TOGETHER):
        part = entries[start : start + _TOGETHER]
        chunks, places, tokens = np.zeros((3, _TOGETHER), np.int32)
        for i, ((chunk, place), token, _, _) in enumerate(part):
            chunks[i], places[i], tokens[i] = chunk, place, token
        hidden = step.hidden[chunks, places]
        logprobs = np.asarray(score(prefill.decoder, prefill.params, hidden, tokens))
        for (*_, values, at), value in zip(part, logprobs, strict=False):
            values[at] = value
