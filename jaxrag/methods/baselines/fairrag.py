"""The stochastic retriever of Fair RAG (Kim & Diaz 2024), the row FairRAG of ARS-RAG's table.

1. Of the n best passages, draw k without replacement by the Plackett-Luce model over the retrieval
   scores, so that items of similar relevance get similar exposure over many draws.
2. Answer the question from them, in the order of the draw.

As in the released code, log-weights are (1 + s)^alpha with scores s scaled to [0, 1];
``temperature`` divides them further (1 has no effect). The original draws 100 rankings a question,
to measure expected exposure and expected utility of personalised generation. Here one is drawn, by
``seed`` and the question's id, so that every run of the same settings draws the same.

Source: docs/methods.md, "FairRAG".
"""

from __future__ import annotations

import dataclasses
import math
import zlib

import jax
import jax.numpy as jnp

from jaxrag.core.checks import check_limits
from jaxrag.functional import plackett_luce
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import record_choice
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.types import Answer, InputError, Question

_SPREAD = 80.0  # natural logarithm of the largest log-weight; float32 ends at 88


@dataclasses.dataclass(frozen=True)
class Config:
    """Five passages, as in the released code, which draws them from all items of a user.

    Attributes:
      candidates: the passages to draw from.
      k: how many are drawn (all, if there are fewer candidates).
      alpha: weight of the scores; 0 draws uniformly.
      temperature: towards 0, the draw becomes the ``k`` best in order.
      seed: of all draws.
      reader: prompts and decoding; ``answer_tokens`` is for open questions.
      closed_tokens: most new tokens of the answer to a closed question.
      by: how a closed question is answered, see `kinds.By`.
    """

    name = "fairrag"

    candidates: steps.Candidates = OnePath(n=20)
    k: int = 5
    alpha: float = 2.0
    temperature: float = 1.0
    seed: int = 0
    reader: steps.Reader = steps.Reader(prompts="baselines")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)
        check_limits(k=self.k)
        if not (self.alpha >= 0 and self.temperature > 0 and self._spread < _SPREAD):
            raise InputError(
                f"alpha is {self.alpha} and temperature {self.temperature}: alpha must be at least "
                "0, temperature above 0, and 2^alpha / temperature within float32. For the k best "
                "without chance use standard_rag."
            )

    @property
    def _spread(self) -> float:
        return self.alpha * math.log(2) - math.log(self.temperature)

    @property
    def needs(self) -> Needs:
        """Needs of the candidates and of answering."""
        return tasks.answering_needs(self) | needs_of(candidates=self.candidates)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Draws passages, then reads."""
        trace: steps.Trace = {}
        pool = await steps.find_candidates(question, tools, self, trace)
        rows = _drawn(question, pool, tools, self, trace)
        reply = await tasks.answer_from_passages(question, rows, tools, self, trace)
        return Answer(question.id, reply.text, trace)


def _drawn(
    question: Question, pool: steps.CandidatePool, tools: Tools, config: Config, trace: steps.Trace
) -> tuple[int, ...]:
    """Rows of the drawn passages (maybe none); the trace gets the draw's log-probability."""
    if not pool.rows:
        record_choice(trace, tools, pool, {"score": ()}, ())
        return ()
    weights = plackett_luce.log_weights(
        jnp.asarray(pool.scores, jnp.float32), alpha=config.alpha, temperature=config.temperature
    )
    key = jax.random.fold_in(jax.random.key(config.seed), zlib.crc32(question.id.encode()))
    order = plackett_luce.sample(key, weights, k=min(config.k, len(pool.rows)))
    rows = tuple(pool.rows[int(position)] for position in order)
    record_choice(trace, tools, pool, {"score": pool.scores}, rows)
    trace["selected"]["logprob"] = float(plackett_luce.log_probability(weights, order))
    return rows
