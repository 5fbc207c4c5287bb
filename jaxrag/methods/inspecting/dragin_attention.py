"""What DRAGIN reads in a model's inside: the word to look up (RIND), and the query for it (QFS)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrag.engines.local.inspection import Inspection
from jaxrag.functional import dragin
from jaxrag.steps.inspection_tool import Word, distinct, words_of, words_of_tokens


class Trigger(NamedTuple):
    """Where a text is cut, and why.

    Attributes:
      word: the first word that is cut off.
      start: the first character of the continuation that it stands in.
      kept: tokens of that continuation before it.
      token: the number in the continuation of the token that asked for it.
    """

    word: Word
    start: int
    kept: int
    token: int


def _width(count: int) -> int:
    """A power of two: few programs."""
    return max(16, 1 << max(count - 1, 0).bit_length())


def _padded(array: np.ndarray, *shape: int) -> np.ndarray:
    found = np.zeros(shape, array.dtype)
    found[tuple(map(slice, array.shape))] = array
    return found


@jax.jit
def _scores(
    entropies: Float[Array, " t"],
    attention: Float[Array, "t t"],
    content: Bool[Array, " t"],
    sentences: Int[Array, " t"],
    where: Bool[Array, " t"],
    relative: Bool[Array, ""],
) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
    """RIND of each token of a continuation, and the attention that it goes by."""
    received = dragin.received(attention, where=where)
    shared = dragin.relative(received, sentences, where=where)
    received = jnp.where(relative, shared, received)
    return dragin.rind(entropies, received, content), received


def find_trigger(
    seen: Inspection,
    length: int,
    theta: float,
    record: dict[str, Any],
    *,
    relative: bool,
    informed: bool,
) -> Trigger | None:
    """The first word that needs to be looked up, by the RIND of its tokens.

    Args:
      seen: the inside of the model at prompt and continuation.
      length: characters of the continuation.
      theta: the score that one must exceed.
      record: is told the highest score and, where there is one, the trigger.
      relative: attention received counts by the mean of its sentence.
      informed: the first sentence is not scored.
    """
    start = len(seen.text) - length
    words, t = words_of(seen.text, start), len(seen.logprobs)
    own = words_of_tokens(seen, words)[len(seen.spans) - t :]
    if own.max(initial=-1) < 0:
        return None
    content = np.array([at >= 0 and words[at].content for at in own])
    # a blank between sentences is the first one's
    sentences = np.maximum.accumulate([words[at].sentence if at >= 0 else 0 for at in own])
    width = _width(t)
    scores, received = _scores(
        _padded(seen.entropies, width),
        _padded(seen.attention[:, len(seen.spans) - t :], width, width),
        _padded(content, width),
        _padded(np.unique(sentences, return_inverse=True)[1].astype(np.int32), width),
        np.arange(width) < t,
        np.bool_(relative),
    )
    allowed = content & (sentences > 0) if informed else content
    scored = np.where(allowed, np.asarray(scores)[:t], 0.0)
    record["highest"] = float(scored.max())
    first = dragin.first_above(jnp.asarray(scored), theta, where=jnp.asarray(allowed))
    token = int(first)
    if token < 0:
        return None
    word = words[own[token]]
    record["trigger"] = {
        "word": word.text,
        "score": float(scored[token]),
        "entropy": float(seen.entropies[token]),
        "received": float(received[token]),
    }
    return Trigger(word, start, int(np.argmax(own == own[token])), token)


def context(seen: Inspection, question: str, so_far: str, trigger: Trigger) -> list[Word]:
    """The content words of the question, the text so far, and what is kept before the trigger."""
    end, found = trigger.start, list[Word]()
    for part in (so_far, question):
        at = seen.text.rfind(part, 0, end) if part else -1
        if at >= 0:
            found, end = [*words_of(seen.text, at, at + len(part)), *found], at
    found += words_of(seen.text, trigger.start, trigger.word.start)
    return [one for one in found if one.content]


@jax.jit
def _chosen(
    attention: Float[Array, " t"],
    words: Int[Array, " t"],
    where: Bool[Array, " w"],
    n: Int[Array, ""],
) -> Bool[Array, " w"]:
    weights = dragin.word_weights(attention, words, count=len(where))
    return dragin.heaviest(weights, n, where=where)


def query_of(seen: Inspection, words: Sequence[Word], trigger: Trigger, count: int) -> str:
    """The ``count`` words that the trigger pays most attention to, in their order; "" for none."""
    if not words:
        return ""
    same = distinct(words)
    own = words_of_tokens(seen, words)
    own = np.where(own >= 0, same[own], -1)
    tokens, width = _width(len(own)), _width(len(words))
    numbers = np.full(tokens, -1, np.int32)
    numbers[: len(own)] = own
    where = np.zeros(width, np.bool_)
    where[: len(words)] = same == np.arange(len(words))  # the first of each
    attention = _padded(seen.attention[trigger.token], tokens)
    kept = np.asarray(_chosen(attention, numbers, where, np.int32(count)))
    return " ".join(word.bare for word, keep in zip(words, kept, strict=False) if keep)
