"""The stochastic retriever of Fair RAG (Kim & Diaz 2024), the row FairRAG of ARS-RAG's table.

1. Of the n best passages, draw k without replacement by the Plackett-Luce model over the retrieval
   scores.
2. Answer the question from them, in the order of the draw.

Log-weights are (1 + s)^alpha / temperature with scores s scaled to [0, 1]. One ranking is drawn, by
``seed`` and the question's id.

Source: docs/methods, "FairRAG".
"""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib

import jax
import numpy as np
from jaxtyping import Array, Float, Int, UInt

from jaxrag.core.checks import check_limits
from jaxrag.functional import plackett_luce
from jaxrag.functional.on_host import on_host
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Candidates, Episode, Pool, Scored
from jaxrag.steps.reader import Reader, Reply
from jaxrag.types import InputError

_SPREAD = 80.0  # natural logarithm of the largest log-weight; float32 ends at 88


@dataclasses.dataclass(frozen=True)
class Config:
    """Five passages, as in the released code, which draws them from all items of a user.

    Attributes:
      k: how many are drawn (all, if there are fewer candidates).
      alpha: weight of the scores; 0 draws uniformly.
      temperature: towards 0, the draw becomes the ``k`` best in order.
    """

    name = "fairrag"

    candidates: Candidates = OnePath(n=20)
    k: int = 5
    alpha: float = 2.0
    temperature: float = 1.0
    seed: int = 0
    reader: Reader = Reader(prompts="baselines")

    def __post_init__(self) -> None:
        check_limits(k=self.k)
        alpha, temperature = self.alpha, self.temperature
        possible = alpha >= 0 and temperature > 0
        if not (possible and alpha * math.log(2) - math.log(temperature) < _SPREAD):
            raise InputError(
                f"alpha is {alpha} and temperature {temperature}: alpha must be at least "
                "0, temperature above 0, and 2^alpha / temperature within float32. For the k best "
                "without chance use standard_rag."
            )

    async def answer(self, episode: Episode) -> Reply:
        """Draws passages, then reads."""
        query, pseudo = episode.question.text, await episode.pseudo_for(self.candidates)
        pool = await self.candidates(episode, query, pseudo)
        drawn = self._draw(episode.question.id, pool) if pool else Scored({"score": ()}, ())
        return await episode.answer(episode.selected(drawn, pool))

    def _draw(self, question_id: str, pool: Pool) -> Scored:
        """The drawn passages, with the draw's log-probability."""
        order, logprob = _drawn(
            np.asarray(pool.scores, np.float32),
            seed=self.seed,
            number=np.uint32(zlib.crc32(question_id.encode())),
            k=min(self.k, len(pool)),
            alpha=self.alpha,
            temperature=self.temperature,
        )
        return Scored({"score": pool.scores}, order.tolist(), {"logprob": float(logprob)})


@functools.partial(on_host, static=("seed", "k", "alpha", "temperature"))
def _drawn(
    scores: Float[Array, " n"],
    *,
    seed: int,
    number: UInt[Array, ""],
    k: int,
    alpha: float,
    temperature: float,
) -> tuple[Int[Array, " k"], Float[Array, ""]]:
    """Positions of ``k`` passages drawn without replacement, and the draw's log-probability."""
    weights = plackett_luce.log_weights(scores, alpha=alpha, temperature=temperature)
    key = jax.random.fold_in(jax.random.key(seed), number)
    order = plackett_luce.sample(key, weights, k=k)
    return order, plackett_luce.log_probability(weights, order)
