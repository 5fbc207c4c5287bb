"""ARS-RAG: adaptive rewrite selection.

1. One generation gives N = 10 rewrites of the question.
2. The ranker orders them by how many relevant passages each is expected to find.
3. The bandit chooses K = pi(x) from the embedding x of the question (eqs 4-5).
4. The first K rewrites are searched for, m = 5 passages each; the results become one list.
5. The language model answers the question from these passages.

Other values of ``order`` and ``count`` give the paper's strategies and ablations, see
`configs/ars.py`.

Source: docs/methods, "ARS-RAG: algorithm".
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods.ars.rewrites import Rewriter, rewrite
from jaxrag.methods.ars.strategies import Chosen, Ranked, RewriteCount, RewriteOrder
from jaxrag.steps.candidates import Search
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings.

    Attributes:
      rewriter: generates the rewrites.
      order: which rewrites are used first.
      count: K, how many are used.
      search: passages of each rewrite, how results are merged, most passages read.
      reader: prompts and decoding of the answer.
    """

    name = "ars"
    needs = Needs(search=True)

    rewriter: Rewriter = Rewriter()
    order: RewriteOrder = Ranked()
    count: RewriteCount = Chosen()
    search: Search = Search()
    reader: Reader = Reader(prompts="ars", closed_tokens=20)

    async def answer(self, episode: Episode) -> Reply:
        """Answers from the passages of the K best rewrites."""
        rewrites = (await rewrite(episode, self.rewriter)).texts
        # Ranked: scores S(q_i, Q) of all rewrites, best first
        ordered = await self.order(episode, rewrites, self.search)
        # Chosen: the bandit's K = argmax_k f_k(x)
        k = await self.count(episode, len(rewrites))
        episode.note(
            kept={"k": k, "numbers": list(ordered.numbers), "scores": list(ordered.scores)}
        )
        kept = [rewrites[number] for number in ordered.numbers[:k]]
        return await episode.answer(await self.search(episode, kept))
