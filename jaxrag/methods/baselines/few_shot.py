"""Few-shot prompting, the row LLM of ARS-RAG's table: demonstrations, then the question.

Nothing is retrieved. The demonstrations are those of the prompts.

Source: docs/methods, "Few-shot".
"""

from __future__ import annotations

import dataclasses

from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader, Reply


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the prompt; those of ``reader`` hold the demonstrations."""

    name = "few_shot"

    reader: Reader = Reader(prompts="baselines")

    async def answer(self, episode: Episode) -> Reply:
        """Answers with one generation."""
        return await episode.answer()
