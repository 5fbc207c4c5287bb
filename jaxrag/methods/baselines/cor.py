"""CoR (chain of rank; Lee et al. 2025) by prompting: the model ranks passages by reliability.

1. The prompt shows n numbered passages; the model writes their numbers, the most reliable first.
2. A second prompt answers the question from the first k of them.

Unknown and repeated numbers are left out, and passages that the model does not name follow in the
order of the search; the trace counts all three. The original fine-tunes a model to rank.

Source: docs/methods, "CoR".
"""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

from jaxrag.core.checks import check_limits
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Candidates, Episode, Pool, Scored
from jaxrag.steps.reader import Reader, Reply


@dataclasses.dataclass(frozen=True)
class Config:
    """CoR's settings.

    Attributes:
      candidates: passages that the model ranks, all in one prompt.
      k: how many of them are read.
    """

    name = "cor"

    candidates: Candidates = OnePath(n=10)
    k: int = 5
    ranking_tokens: int = 64
    reader: Reader = Reader(prompts="baselines")

    def __post_init__(self) -> None:
        check_limits(k=self.k, ranking_tokens=self.ranking_tokens)

    async def answer(self, episode: Episode) -> Reply:
        """Ranks the passages, then reads the first."""
        query, pseudo = episode.question.text, await episode.pseudo_for(self.candidates)
        pool = await self.candidates(episode, query, pseudo)
        order = await _ranked(episode, pool, limit=self.ranking_tokens)
        scored = Scored({"score": pool.scores}, order.positions[: self.k])
        return await episode.answer(episode.selected(scored, pool))


class RankedIds(NamedTuple):
    """Positions of all passages, best first, and the number of faults in the written ranking."""

    positions: tuple[int, ...]
    unknown: int
    duplicate: int
    missing: int


def read_order(text: str, count: int) -> RankedIds:
    """The ranking of ``count`` passages in a text with their numbers, from 1."""
    written = [int(digits) if len(digits) < 10 else 0 for digits in re.findall(r"[0-9]+", text)]
    valid = [number - 1 for number in written if 1 <= number <= count]
    ranked = tuple(dict.fromkeys(valid))
    rest = tuple(sorted(set(range(count)) - set(ranked)))
    return RankedIds(ranked + rest, len(written) - len(valid), len(valid) - len(ranked), len(rest))


async def _ranked(episode: Episode, pool: Pool, *, limit: int) -> RankedIds:
    """Asks for the ranking of passages whose titles begin with their numbers."""
    passages = episode.passages(pool)
    numbered = [
        dataclasses.replace(passage, title=f"[{number}] {passage.title}")
        for number, passage in enumerate(passages, start=1)
    ]
    reply = await episode.ask("rank_ids", passages=numbered, limit=limit)
    order = read_order(reply.text, len(passages))
    ranking = {
        **reply.record(),
        "ids": [passages[i].id for i in order.positions],
        "unknown": order.unknown,
        "duplicate": order.duplicate,
        "missing": order.missing,
    }
    episode.note(ranking=ranking)
    return order
