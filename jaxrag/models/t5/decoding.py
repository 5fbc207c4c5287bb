"""Answers of a T5, greedy or drawn, as two programs of fixed shape; beams are in `t5_beams`.

Sources of a batch are padded on the right to one length and their answers grow in step, so all rows
write to the same slot of the cache. A row's result depends on its own source, its number and the
shapes, never on its neighbours.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.decoder.cache import Cache
from jaxrag.models.decoder.decoding import TokenSampling, pick
from jaxrag.models.t5.network import T5, empty_answers
from jaxrag.models.t5.scoring import logprobs_of, target_logprobs


class T5Limits(NamedTuple):
    """When answers end.

    Attributes:
      least: new tokens before which no end token is chosen.
      most: new tokens after which an answer is over.
      ends: which tokens end an answer.
    """

    least: Int[Array, ""]
    most: Int[Array, ""]
    ends: Bool[Array, " v"]


class T5Answers(NamedTuple):
    """Where the answers of a batch stand.

    Attributes:
      tokens, logprobs: made so far, and their natural-log probabilities, unscaled by temperature
        and with no token ruled out; beyond a row's ``made``, pad tokens and zeros.
      made: how many tokens each row has, its end token included.
      finished: which rows are done.
      step: how many steps were made.
      cache, memory, where: keys and values of answers and sources, and which tokens of these are
        there.
    """

    tokens: Int[Array, "b t"]
    logprobs: Float[Array, "b t"]
    made: Int[Array, " b"]
    finished: Bool[Array, " b"]
    step: Int[Array, ""]
    cache: Cache
    memory: Cache
    where: Bool[Array, "b s"]


@partial(jax.jit, static_argnames=("model", "slots"))
def start_answers(
    model: T5,
    params: Any,
    tokens: Int[Array, "b s"],
    where: Bool[Array, "b s"],
    *,
    slots: int,
) -> T5Answers:
    """Reads sources, and makes room for answers of up to ``slots`` tokens.

    A row without any token is finished at once: it fills up the batch.
    """
    b = len(tokens)
    encoded: Any = model.apply({"params": params}, tokens, where, method="encode")
    memory: Any = model.apply({"params": params}, encoded, method="remember")
    return T5Answers(
        tokens=jnp.full((b, slots), model.config.pad_token_id, jnp.int32),
        logprobs=jnp.zeros((b, slots)),
        made=jnp.zeros(b, jnp.int32),
        finished=~where.any(axis=1),
        step=jnp.int32(0),
        cache=empty_answers(model.config, b, slots, model.dtype),
        memory=memory,
        where=where,
    )


@partial(jax.jit, static_argnames="model")
def extend_answers(
    model: T5,
    params: Any,
    answers: T5Answers,
    steps: Int[Array, ""],
    limits: T5Limits,
    sampling: TokenSampling,
) -> T5Answers:
    """Makes up to ``steps`` further tokens of each answer, fewer where all are over before.

    A draw depends on the seed, the row's number and the step, so not on the batch.
    """
    most = jnp.minimum(limits.most, answers.tokens.shape[1])
    last = jnp.minimum(answers.step + steps, most)

    def unfinished(now: T5Answers) -> Bool[Array, ""]:
        return (now.step < last) & ~now.finished.all()

    def step(now: T5Answers) -> T5Answers:
        logits, cache = next_logits(model, params, now, now.tokens)
        allowed = _without_ends(logits, now.step, limits)
        token = pick(allowed, jnp.full(len(allowed), now.step), sampling)
        logprob, going = logprobs_of(logits, token), ~now.finished
        made = now.made + going
        return now._replace(
            tokens=now.tokens.at[:, now.step].set(
                jnp.where(going, token, model.config.pad_token_id)
            ),
            logprobs=now.logprobs.at[:, now.step].set(jnp.where(going, logprob, 0.0)),
            made=made,
            finished=now.finished | limits.ends[token] | (made >= most),
            step=now.step + 1,
            cache=cache,
        )

    return jax.lax.while_loop(unfinished, step, answers)


@partial(jax.jit, static_argnames="model")
def score(
    model: T5,
    params: Any,
    tokens: Int[Array, "b s"],
    where: Bool[Array, "b s"],
    targets: Int[Array, "b t"],
) -> Float[Array, "b t"]:
    """`target_logprobs` without dropout, compiled."""
    return target_logprobs(model, params, tokens, where, targets)


def next_logits(
    model: T5, params: Any, now: Any, tokens: Int[Array, "n t"]
) -> tuple[Float[Array, "n v"], Cache]:
    """Logits of the token after those made so far, and the cache with the last of them in it.

    Args:
      now: has ``step``, ``cache``, ``memory`` and ``where``, as `T5Answers` does.
      tokens: all answers' tokens, of which there are ``now.step``.
    """
    before = jax.lax.dynamic_index_in_dim(tokens, now.step - 1, axis=1, keepdims=False)
    before = jnp.where(now.step == 0, model.config.decoder_start_token_id, before)
    made: Any = model.apply(
        {"params": params},
        before[:, None],
        cache=now.cache,
        memory=now.memory,
        where=now.where,
        slot=now.step,
        method="step",
    )
    hidden, cache = made
    logits: Any = model.apply({"params": params}, hidden[:, 0], method="logits")
    return logits, cache


def _without_ends(
    logits: Float[Array, "n v"], step: Int[Array, ""], limits: T5Limits
) -> Float[Array, "n v"]:
    return jnp.where((step < limits.least) & limits.ends, -jnp.inf, logits)
