"""Beam search for a T5, as transformers' ``generate`` defines it (version 5).

At each step the ``beams`` most probable unfinished hypotheses of a source continue. One that ends
is kept if it is among the ``beams`` best of its step; of the finished ones, those with the best
log-probability / length stay. A source is done when it has ``beams`` finished hypotheses and its
best unfinished one, divided by its length, is not better than the worst of them. At the last step
all hypotheses end. Each source is decided by itself.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.cache import Cache, empty_cache
from jaxrag.models.t5.decoding import T5Answers, T5Limits, next_logits, start_answers
from jaxrag.models.t5.network import T5

_NONE = -jnp.inf  # score of an empty slot


class Hypotheses(NamedTuple):
    """Hypotheses of each source, best first; ``k`` counts them.

    Attributes:
      score: log-probability; of finished hypotheses, divided by the length.
      tokens, logprobs, made: as in `jaxrag.models.t5.decoding.T5Answers`.
    """

    score: Float[Array, "b k"]
    tokens: Int[Array, "b k t"]
    logprobs: Float[Array, "b k t"]
    made: Int[Array, "b k"]


class BeamState(NamedTuple):
    """State of the search.

    Attributes:
      going, ended: unfinished and finished hypotheses.
      open: which sources are not done.
      step, cache, memory, where: as in `T5Answers`; the cache has a row for each unfinished
        hypothesis.
    """

    going: Hypotheses
    ended: Hypotheses
    open: Bool[Array, " b"]
    step: Int[Array, ""]
    cache: Cache
    memory: Cache
    where: Bool[Array, "b s"]


@partial(jax.jit, static_argnames=("model", "beams", "kinds", "slots"))
def beam_search(
    model: T5,
    params: Any,
    tokens: Int[Array, "b s"],
    where: Bool[Array, "b s"],
    limits: T5Limits,
    *,
    beams: int,
    slots: int,
    kinds: int = 1,
) -> tuple[Int[Array, "b t"], Float[Array, "b t"], Int[Array, " b"]]:
    """The best answer to each source: its tokens, their log-probabilities, and their number.

    Args:
      tokens, where: sources and the mask of their tokens; a row without tokens is padding.
      limits: when answers end; ``most`` is at most ``slots``.
      beams: number of hypotheses that continue.
      slots: of the cache.
      kinds: number of tokens that ``limits.ends`` marks.
    """
    most = jnp.minimum(limits.most, slots)
    begun = start_answers(model, params, tokens, where, slots=slots)

    def unfinished(now: BeamState) -> Bool[Array, ""]:
        return (now.step < most) & now.open.any()

    def step(now: BeamState) -> BeamState:
        candidates, parents, token, cache = _continue(model, params, now, kinds)
        step = now.step + 1
        over = limits.ends[token] | (step >= most)
        going, order = _best(candidates._replace(score=_unless(over, candidates.score)), beams)
        finished = over & (jnp.arange(over.shape[1]) < beams) & now.open[:, None]
        newly = candidates._replace(score=_unless(~finished, candidates.score / step))
        merged = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), now.ended, newly)
        ended, _ = _best(merged, beams)
        worst = ended.score.min(axis=1)  # -inf unless there are enough
        more = going.score[:, 0] / step > worst
        cache = _select(cache, jnp.take_along_axis(parents, order, axis=1))
        return now._replace(going=going, ended=ended, open=now.open & more, step=step, cache=cache)

    best = jax.lax.while_loop(unfinished, step, _begin(model, begun, beams)).ended
    return best.tokens[:, 0], best.logprobs[:, 0], best.made[:, 0]


def _begin(model: T5, begun: T5Answers, beams: int) -> BeamState:
    (b, slots), score = begun.tokens.shape, jnp.full((len(begun.tokens), beams), _NONE)
    nothing = Hypotheses(
        score,
        jnp.broadcast_to(begun.tokens[:, None], (b, beams, slots)),
        jnp.zeros((b, beams, slots)),
        jnp.zeros((b, beams), jnp.int32),
    )
    return BeamState(
        going=nothing._replace(score=score.at[:, 0].set(0.0)),  # all others are the same hypothesis
        ended=nothing,
        open=~begun.finished,
        step=jnp.int32(0),
        cache=empty_cache(model.config, b * beams, slots, model.dtype),
        memory=begun.memory,
        where=begun.where,
    )


def _continue(
    model: T5, params: Any, now: BeamState, kinds: int
) -> tuple[Hypotheses, Int[Array, "b k"], Int[Array, "b k"], Cache]:
    """The best one-token continuations, enough that ``beams`` remain whichever of them end.

    Returned with the beams that they continue, their new tokens, and the cache of all beams.
    """
    b, beams, slots = now.going.tokens.shape
    logits, cache = next_logits(model, params, now, now.going.tokens.reshape(-1, slots))
    logprobs = jax.nn.log_softmax(logits).reshape(b, beams, -1)
    sums = (now.going.score[..., None] + logprobs).reshape(b, -1)
    score, place = jax.lax.top_k(sums, (1 + kinds) * beams)
    parent, token = jnp.divmod(place, logprobs.shape[-1])
    old = _rows(now.going, parent)
    added = jnp.take_along_axis(logprobs.reshape(b, -1), place, axis=1)
    candidates = Hypotheses(
        score,
        old.tokens.at[:, :, now.step].set(token),
        old.logprobs.at[:, :, now.step].set(added),
        old.made + 1,
    )
    return candidates, parent, token, cache


def _unless(out: Bool[Array, "b k"], score: Float[Array, "b k"]) -> Float[Array, "b k"]:
    return jnp.where(out, _NONE, score)


def _best(some: Hypotheses, count: int) -> tuple[Hypotheses, Int[Array, "b k"]]:
    """The ``count`` hypotheses with the best scores, and their indices; of equals the first."""
    _, places = jax.lax.top_k(some.score, count)
    return _rows(some, places), places


def _rows(some: Hypotheses, places: Int[Array, "b k"]) -> Hypotheses:
    return jax.vmap(lambda row, places: jax.tree.map(lambda a: a[places], row))(some, places)


def _select(cache: Cache, parents: Int[Array, "b k"]) -> Cache:
    """The cache of hypotheses that continue these beams."""
    b, k = parents.shape
    rows = (jnp.arange(b)[:, None] * k + parents).reshape(-1)
    return jax.tree.map(lambda array: array[rows], cache)
