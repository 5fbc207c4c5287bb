"""Greedy and sampled answers of a T5, and scores of given answers, as programs of fixed shape.

Sources of a batch are right-padded to one length; their answers grow in step. A row's result
depends on its own source, its number and the shapes. Beam search: `jaxrag.models.t5.beams`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.cache import Cache, empty_cache
from jaxrag.models.sampling import TokenSampling, logprobs_of, sample_tokens
from jaxrag.models.t5.network import T5, shift_right


class T5Limits(NamedTuple):
    """The most new tokens of an answer, and the mask of the end tokens."""

    most: Int[Array, ""]
    ends: Bool[Array, " v"]


class T5Answers(NamedTuple):
    """Decoding state of a batch.

    Attributes:
      tokens, logprobs: generated tokens, and their natural-log probabilities, unscaled by
        temperature; pad tokens and zeros from ``made`` on.
      made: number of tokens of each row, including its end token.
      finished: which rows are done.
      step: number of steps made.
      cache, memory: keys and values of answers and sources.
      where: mask of the sources' tokens.
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
    model: T5, params: Any, tokens: Int[Array, "b s"], where: Bool[Array, "b s"], *, slots: int
) -> T5Answers:
    """Encodes sources, and allocates answers of up to ``slots`` tokens; empty rows are finished."""
    b = len(tokens)
    encoded: Any = model.apply({"params": params}, tokens, where, method="encode")
    memory: Any = model.apply({"params": params}, encoded, method="remember")
    return T5Answers(
        tokens=jnp.full((b, slots), model.config.pad_token_id, jnp.int32),
        logprobs=jnp.zeros((b, slots)),
        made=jnp.zeros(b, jnp.int32),
        finished=~where.any(axis=1),
        step=jnp.int32(0),
        cache=empty_cache(model.config, b, slots, model.dtype),
        memory=memory,
        where=where,
    )


@partial(jax.jit, static_argnames="model", donate_argnames="answers")
def extend_answers(
    model: T5,
    params: Any,
    answers: T5Answers,
    steps: Int[Array, ""],
    limits: T5Limits,
    sampling: TokenSampling,
) -> T5Answers:
    """Up to ``steps`` further tokens of each answer; fewer if all finish. Donates ``answers``."""
    most = jnp.minimum(limits.most, answers.tokens.shape[1])
    last = jnp.minimum(answers.step + steps, most)

    def unfinished(now: T5Answers) -> Bool[Array, ""]:
        return (now.step < last) & ~now.finished.all()

    def step(now: T5Answers) -> T5Answers:
        logits, cache = next_logits(model, params, now, now.tokens)
        token = sample_tokens(logits, jnp.full(len(logits), now.step), sampling)
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


def target_states(
    model: T5,
    params: Any,
    tokens: Int[Array, "b s"],
    where: Bool[Array, "b s"],
    targets: Int[Array, "b t"],
    *,
    key: jax.Array | None = None,
) -> Float[Array, "b t d"]:
    """The hidden state that predicts each token of an answer, by teacher forcing.

    Args:
      tokens, where: the source and the mask of its tokens.
      targets: the answer, including its end token; right-padded.
      key: seeds dropout; None applies none.
    """
    states: Any = model.apply(
        {"params": params},
        tokens,
        where,
        shift_right(targets, model.config),
        deterministic=key is None,
        rngs=None if key is None else {"dropout": key},
        method="hidden",
    )
    return states


@partial(jax.jit, static_argnames="model")
def score(
    model: T5,
    params: Any,
    tokens: Int[Array, "b s"],
    where: Bool[Array, "b s"],
    targets: Int[Array, "b t"],
) -> Float[Array, "b t"]:
    """Natural-log probability of each token of an answer; arguments as for `target_states`."""
    hidden = target_states(model, params, tokens, where, targets)
    logits: Any = model.apply({"params": params}, hidden, method="logits")
    return logprobs_of(logits, targets)


def next_logits(
    model: T5, params: Any, now: Any, tokens: Int[Array, "n t"]
) -> tuple[Float[Array, "n v"], Cache]:
    """Logits of each answer's next token, and the cache with its last token.

    ``now`` has ``step``, ``cache``, ``memory`` and ``where``, as in `T5Answers`; ``tokens`` are of
    all answers, of which the first ``now.step`` are generated.
    """
    before = jax.lax.dynamic_index_in_dim(tokens, now.step - 1, axis=1, keepdims=False)
    before = jnp.where(now.step == 0, model.config.decoder_start_token_id, before)
    outputs: Any = model.apply(
        {"params": params},
        before[:, None],
        cache=now.cache,
        memory=now.memory,
        where=now.where,
        slot=now.step,
        method="step",
    )
    hidden, cache = outputs
    logits: Any = model.apply({"params": params}, hidden[:, 0], method="logits")
    return logits, cache
