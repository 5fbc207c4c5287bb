"""Gates: should this question be answered with retrieval?

DTR's `jaxrag.methods.dtr.UncertaintyGate` and PAIRS' `jaxrag.methods.pairs.AgreementGate` stand
with their methods.
"""

from __future__ import annotations

import dataclasses

from jaxrag.engines.language_model import ModelSettings
from jaxrag.steps.episode import Episode
from jaxrag.text.sentences import first_word


@dataclasses.dataclass(frozen=True)
class Always:
    """Retrieves for every question."""

    async def __call__(self, episode: Episode) -> bool:
        """Decides to retrieve."""
        return episode.decided("always", True)


@dataclasses.dataclass(frozen=True)
class JudgeGate:
    """DTR's LLM Judge baseline: a language model decides whether retrieval is needed.

    The first word of its answer decides; anything but "no" retrieves.

    Attributes:
      judge: the language model; None uses the run's.
    """

    judge: ModelSettings | None = None

    async def __call__(self, episode: Episode) -> bool:
        """Prompts the judge with the reader's prompts."""
        reply = await episode.ask("judge", model=self.judge)
        verdict = first_word(reply.text.lower())
        junk = verdict not in ("yes", "no")
        return episode.decided("judge", verdict != "no", verdict=reply.text, junk=junk)
