"""RRR: rewrite, retrieve, read (Ma et al. 2023), the baseline of ERRR.

1. Rewrite: from the question alone, the reader (frozen RRR) or a trained model (trainable RRR)
   writes queries.
2. Retrieve: search for each query and merge the results.
3. Read: the reader answers the question from them.

Source: docs/methods.md, "ERRR: frozen and trainable" and "ERRR: baselines".
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods.errr import queries
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.candidates import Search
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.types import Answer, InputError, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; all but ``rewriter`` as in `errr.Config`.

    Attributes:
      rewriter: writes the queries, without C.
      search: passages of each query, how they are merged, how many are read.
      search_question: whether the question is searched for, too.
      reader: prompts and decoding.
      closed_tokens: most new tokens of a closed question's answer.
      by: how a closed question is answered, see `kinds.By`.
    """

    name = "rrr"

    rewriter: queries.Writer = queries.Prompted(context=False)
    search: Search = Search(m=5, merge="fusion", read=5)
    search_question: bool = False
    reader: steps.Reader = steps.Reader(prompts="errr")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)
        if self.rewriter.context:
            raise InputError(
                "rewriter.context is True, but RRR does not extract a context: set it to False, or "
                "use the method errr."
            )

    @property
    def needs(self) -> Needs:
        """An index, and the needs of rewriter and answering."""
        return Needs(search=True) | needs_of(rewriter=self.rewriter) | tasks.answering_needs(self)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Rewrites, retrieves, reads."""
        trace: steps.Trace = {}
        texts = await self.rewriter(question, "", tools, self.reader, trace)
        pool = await queries.search_for(
            question, texts, tools, self.search, trace, search_question=self.search_question
        )
        reply = await queries.read(question, pool, tools, self, trace)
        return Answer(question.id, reply.text, trace)
