"""RRR: rewrite, retrieve, read (Ma et al. 2023), the baseline of ERRR.

1. Rewrite: from the question alone, the reader (frozen RRR) or a trained model (trainable RRR)
   writes queries.
2. Retrieve: search for each query and merge the results.
3. Read: the reader answers the question from them.

Source: docs/methods, "ERRR: frozen and trainable" and "ERRR: baselines".
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods.errr import queries
from jaxrag.steps.candidates import Search
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; ``rewriter`` writes the queries, the others are as in `errr.Config`."""

    name = "rrr"
    needs = Needs(search=True)

    rewriter: queries.Writer = queries.Prompted(context=False)
    search: Search = Search(m=5, merge="fusion", read=5)
    search_question: bool = False
    reader: Reader = Reader(prompts="errr")

    def __post_init__(self) -> None:
        if self.rewriter.context:
            raise InputError(
                "rewriter.context is True, but RRR does not extract a context: set it to False, or "
                "use the method errr."
            )

    async def answer(self, episode: Episode) -> Reply:
        """Rewrites, retrieves, reads."""
        texts = await self.rewriter(episode, "")
        pool = await queries.search_for(
            episode, texts, self.search, search_question=self.search_question
        )
        return await queries.read(episode, pool)
