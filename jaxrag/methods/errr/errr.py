"""ERRR: extract, refine, retrieve, read.

1. Extract: the reader writes down what it knows about the question, C.
2. Refine: from C and the question, a query optimizer writes queries that check and complete C. It
   is the reader itself (`queries.Prompted`, frozen ERRR) or a trained model (`queries.Trained`,
   trainable ERRR).
3. Retrieve: search for each query and merge the results.
4. Read: the reader answers the question from them, without C.

Source: docs/methods, "ERRR".
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods.errr import queries
from jaxrag.steps.candidates import Search
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; unspecified ones are ours (docs/methods, "ERRR: open points").

    Attributes:
      optimizer: writes the queries; if it is not shown C, nothing is extracted.
      search: passages of each query, how they are merged, how many are read. The paper reads the
        top 5 and does not say whether of each query or of all. Here each query finds 5, and 5 of
        all are read, those that several found first.
      search_question: whether the question is searched for, too. The paper does not.
      reader: prompts and decoding; ``passage_tokens`` are of C. Its prompts hold the data set's
        demonstrations, see `configs/errr.py`.
    """

    name = "errr"
    needs = Needs(search=True)

    optimizer: queries.Writer = queries.Prompted()
    search: Search = Search(m=5, merge="fusion", read=5)
    search_question: bool = False
    reader: Reader = Reader(prompts="errr")

    async def answer(self, episode: Episode) -> Reply:
        """Extracts, refines, retrieves, reads."""
        # C = E(q | theta), a pseudo-document
        context = await episode.pseudo_context() if self.optimizer.context else ""
        texts = await self.optimizer(episode, context)
        pool = await queries.search_for(
            episode, texts, self.search, search_question=self.search_question
        )
        return await queries.read(episode, pool)
