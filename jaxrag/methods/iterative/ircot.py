"""IRCoT (Trivedi et al. 2023): interleaves retrieval with chain-of-thought reasoning.

1. Retrieve passages for the question.
2. Write the next sentence of reasoning from all passages so far.
3. If it states the answer, stop; otherwise retrieve passages for that sentence, and go to 2.
4. Read the answer from all passages (the paper's separate reader, here the one that asks for the
   answer alone) or from the reasoning itself.

Source and differences from the original: docs/methods, "IRCoT".
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from jaxrag.core.checks import check_choices, check_limits
from jaxrag.steps import loops
from jaxrag.steps.episode import Episode, Pool
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs
from jaxrag.text.sentences import sentences, stated_answer, word_key

AnswerFrom = Literal["passages", "reasoning"]


@dataclasses.dataclass(frozen=True)
class Interleaving:
    """Limits of the loop (section 3 of the paper).

    Attributes:
      k: passages of each search; the paper tunes 2 to 8.
      max_passages: most passages collected; later ones are not added (15 in the paper).
      max_steps: most sentences (8 in the paper).
      sentence_tokens: most new tokens of a generation, of which the first sentence is taken.
    """

    k: int = 4
    max_passages: int = 15
    max_steps: int = 8
    sentence_tokens: int = 64

    def __post_init__(self) -> None:
        limits = {f"loop.{name}": value for name, value in dataclasses.asdict(self).items()}
        check_limits(**limits)


@dataclasses.dataclass(frozen=True)
class Config:
    """The paper's limits, with 4 passages a search.

    Attributes:
      answer_from: text that the answer is read from.
      reader: prompts and decoding; roles "reason", and those that answer from passages.
    """

    name = "ircot"
    needs = Needs(search=True)

    loop: Interleaving = Interleaving()
    answer_from: AnswerFrom = "passages"
    reader: Reader = Reader(prompts="iterative")

    def __post_init__(self) -> None:
        check_choices(self, answer_from=AnswerFrom)

    async def answer(self, episode: Episode) -> Reply:
        """Interleaves retrieval with reasoning, then answers."""
        return await reason_and_answer(episode, self.loop, self.answer_from)


async def reason_and_answer(episode: Episode, loop: Interleaving, answer_from: AnswerFrom) -> Reply:
    """Interleaves retrieval with reasoning, then answers from the passages or the reasoning."""
    pool, said = await interleave(episode, loop)
    if answer_from == "passages":
        return await episode.answer(pool)
    return loops.answer_stated(episode, said, read=pool)


async def interleave(episode: Episode, loop: Interleaving) -> tuple[Pool, list[Reply]]:
    """Searches by the question, writes a sentence, searches by it, and so on.

    ``trace["loop"]`` tells why it ended: a sentence states the answer ("stated"), is empty
    ("empty"), or was written before ("repeated": a greedy model would go on so); or ``max_steps``
    sentences are written ("limit"). ``trace["reasoning"]`` has every sentence written.

    Returns:
      The passages collected, first found first, and the sentences that count.
    """
    pool = await episode.search(episode.question.text, loop.k, path="question")
    pool, end = pool.first(loop.max_passages), "limit"
    said: list[Reply] = []
    reasoning: list[dict[str, Any]] = []
    for number in range(1, loop.max_steps + 1):
        sentence = await _next_sentence(episode, pool, said, loop.sentence_tokens)
        reasoning.append({**sentence.record(), "passages": len(pool)})
        if not word_key(sentence.text):
            end = "empty"
            break
        if word_key(sentence.text) in {word_key(before.text) for before in said}:
            end = "repeated"
            break
        said.append(sentence)
        if stated_answer(sentence.text) is not None:
            end = "stated"
            break
        new = await episode.search(sentence.text, loop.k, path=f"sentence {number}")
        pool = pool.union(new).first(loop.max_passages)
    episode.note(reasoning=reasoning, loop={"steps": len(reasoning), "end": end})
    return pool, said


async def _next_sentence(episode: Episode, pool: Pool, said: list[Reply], tokens: int) -> Reply:
    """The first sentence that the model generates from the passages and the reasoning so far."""
    reply = await episode.ask(
        "reason",
        passages=pool,
        limit=tokens,
        question=loops.with_choices(episode.question),
        so_far=loops.so_far(said),
    )
    return reply._replace(text=next(iter(sentences(reply.text)), ""))
