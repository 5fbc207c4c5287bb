"""RRR: rewrite, retrieve, read (Ma et al. 2023), the baseline of ERRR.

Source: docs/methods.md, "ERRR: frozen and trainable" and "ERRR: baselines".

As `errr`, but for C: the queries are written from the question alone, by the reader (frozen RRR) or
a trained model (trainable RRR). The question itself is what is answered.
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods.errr import queries
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.candidates import Search
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, InputError, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings; all but ``rewriter`` as in `errr.Config`.

    Attributes:
      rewriter: who writes the queries, without being shown C.
      search: passages of each query, how they are merged, how many are read.
      search_question: whether the question is searched for, too.
      reader: how the model is asked.
      closed_tokens: most new tokens of a closed question's answer.
      by: what answers a closed question, see `kinds.By`.
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
                "rewriter.context is True, and RRR extracts nothing that could be shown: set it to "
                "False, or take the method errr."
            )

    @property
    def needs(self) -> Needs:
        """Those of the writer of queries, the search and answering."""
        return Needs(search=True) | needs_of(rewriter=self.rewriter) | tasks.answering_needs(self)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Rewrites, retrieves, reads."""
        trace: steps.Trace = {}
        texts = await self.rewriter(question, "", tools, self.reader, trace)
        return await queries.search_and_read(question, texts, tools, self, trace)
