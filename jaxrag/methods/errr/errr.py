"""ERRR: extract, refine, retrieve, read (docs/methods.md, "ERRR").

The reader writes down what it knows, C; from C and the question a writer makes queries that check
and complete it; the reader answers the question from what they find. The writer is the reader
itself (`queries.Prompted`, frozen ERRR) or a trained model (`queries.Trained`, trainable ERRR).
"""

from __future__ import annotations

import dataclasses

from jaxrag.methods.errr import queries
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, tasks
from jaxrag.steps.candidates import Search
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, Question


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's settings, and ours where it gives none (docs/methods.md, "ERRR: open points").

    Attributes:
      optimizer: who writes the queries; one that is not shown C needs no extraction.
      search: passages of each query, how they are merged, how many are read. The paper reads the
        top 5 and does not say whether of each query or of all. Here each finds 5 and 5 are read in
        all, so that a prompt's length does not depend on how many queries a model writes; merged by
        "fusion", where every query's first passages come first, those that several found before
        the others ("concatenate" would read the first query's alone).
      search_question: whether the question is searched for, too; the paper puts it beside what was
        found, for the reader, and does not search for it.
      reader: how the model is asked; ``passage_tokens`` are of C. Its prompts hold the data set's
        demonstrations, see `configs/errr.py`.
      closed_tokens: most new tokens of a closed question's answer.
      by: what answers a closed question, see `kinds.By`.
    """

    name = "errr"

    optimizer: queries.Writer = queries.Prompted()
    search: Search = Search(m=5, merge="fusion", read=5)
    search_question: bool = False
    reader: steps.Reader = steps.Reader(prompts="errr")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)

    @property
    def needs(self) -> Needs:
        """Those of the writer of queries, the search and answering."""
        return Needs(search=True) | needs_of(optimizer=self.optimizer) | tasks.answering_needs(self)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Extracts, optimises, retrieves, reads."""
        trace: steps.Trace = {}
        known = ""
        if self.optimizer.context:
            known = await queries.extract(question, tools, self.reader, trace)
        texts = await self.optimizer(question, known, tools, self.reader, trace)
        return await queries.search_and_read(question, texts, tools, self, trace)
