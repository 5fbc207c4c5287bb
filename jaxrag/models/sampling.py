"""Choosing the next token from logits, and its log-probability."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt


class Repetition(NamedTuple):
    """Penalty of tokens that have occurred, as transformers and vLLM apply it.

    Source: Keskar et al. 2019 (CTRL), section 4.1; there logits are divided whatever their sign. It
    divides positive logits of the tokens ``seen`` in prompt and answer, and multiplies negative
    ones.
    """

    penalty: Float[Array, ""]
    seen: Bool[Array, "b v"]

    def of(self, logits: Float[Array, "b v"]) -> Float[Array, "b v"]:
        """Applies the penalty to the logits."""
        lower = jnp.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return jnp.where(self.seen, lower, logits)

    def after(self, tokens: Int[Array, " b"]) -> Repetition:
        """The penalty once a token of each row has been added."""
        return self._replace(seen=self.seen.at[jnp.arange(len(tokens)), tokens].set(True))


class TokenSampling(NamedTuple):
    """How each row's token is chosen: greedily at temperature 0, else drawn.

    A draw depends on the row's seed, its number and the step alone, hence not on the batch.
    """

    temperature: Float[Array, ""]
    seeds: UInt[Array, " b"]
    rows: UInt[Array, " b"]
    repetition: Repetition | None = None


def sample_tokens(
    logits: Float[Array, "b v"], step: Int[Array, " b"], sampling: TokenSampling
) -> Int[Array, " b"]:
    """The next token of each row; ``step`` is its position in the row's answer, from 0."""
    if sampling.repetition is not None:
        logits = sampling.repetition.of(logits)

    def draw(logits: Float[Array, "b v"]) -> Int[Array, " b"]:
        def draw_row(seed: Array, row: Array, step: Array, logits: Array) -> Array:
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), row), step)
            return jax.random.categorical(key, logits / sampling.temperature)

        return jax.vmap(draw_row)(sampling.seeds, sampling.rows, step, logits)

    def best(logits: Float[Array, "b v"]) -> Int[Array, " b"]:
        return logits.argmax(axis=-1)

    return jax.lax.cond(sampling.temperature > 0, draw, best, logits).astype(jnp.int32)


def logprobs_of(logits: Float[Array, "*n v"], tokens: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """Natural-log probability of each token under its logits."""
    chosen = jnp.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)
