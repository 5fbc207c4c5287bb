"""One round of retrieval: decide whether to retrieve, search, select passages, read.

DTR, PAIRS, R3 and `jaxrag.methods.retrieve_and_read` differ in their parts and prompts.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxrag.core.checks import check_choices
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Candidates, Episode, Gate, PassageSelector
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader, Reply
from jaxrag.types import InputError

PseudoRole = Literal["pseudo_context", "rationale"]


@dataclasses.dataclass(frozen=True)
class Config:
    """Any gate, candidates and passage selector.

    Attributes:
      gate: when to retrieve; None always retrieves and records no decision.
      candidates: which passages are candidates; None never retrieves.
      select: which of them are read.
      reader: prompts and decoding.
      pseudo: the pseudo-context that the model writes to search or score by: a passage, or a
        rationale.
      name: of the method, as in the papers' tables of numbers.
    """

    gate: Gate | None = None
    candidates: Candidates | None = OnePath(n=3)
    select: PassageSelector = Top(k=3)
    reader: Reader = Reader(prompts="dtr")
    pseudo: PseudoRole = "pseudo_context"
    name: str = dataclasses.field(default="standard_rag", kw_only=True)

    def __post_init__(self) -> None:
        check_choices(self, pseudo=PseudoRole)
        if self.gate is not None and self.candidates is None:
            raise InputError("candidates is None, which never retrieves: set gate=None, too.")

    async def answer(self, episode: Episode) -> Reply:
        """Answers directly, or retrieves, selects and reads."""
        retrieve = self.candidates is not None
        if self.gate is not None:
            retrieve = await self.gate(episode)
            if not isinstance(retrieve, bool):
                gate = type(self.gate).__name__
                raise InputError(
                    f"gate {gate} returned {retrieve!r}: return what episode.decided gives."
                )
        if self.candidates is None or not retrieve:
            return await episode.answer()
        query = episode.question.text
        pseudo = await episode.pseudo_for(self.candidates, self.select, role=self.pseudo)
        pool = await self.candidates(episode, query, pseudo)
        kept = await episode.select(self.select, pool, query, pseudo)
        return await episode.answer(kept)
