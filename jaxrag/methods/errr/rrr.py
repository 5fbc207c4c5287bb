"""RRR: rewrite, retrieve, read (Ma et al. 2023), the baseline of ERRR (METHODS sections 4.4, 4.7).

As `errr`, but for C: the queries are written from the question alone, by the reader (frozen RRR) or
a trained model (trainable RRR). The question itself is what is answered.
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods import kinds, queries, steps
from jaxrag.methods.rewrite_steps import Search
from jaxrag.methods.tools import Tools
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


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Rewrites, retrieves, reads."""
    trace: steps.Trace = {}
    texts = await config.rewriter(question, "", tools, config.reader, trace)
    return await queries.search_and_read(question, texts, tools, config, trace)
