"""IRCoT (Trivedi et al. 2023): interleaves retrieval with chain-of-thought reasoning.

1. Retrieve passages for the question.
2. Write the next sentence of reasoning from all passages so far.
3. If it states the answer, stop; otherwise retrieve passages for that sentence, and go to 2.
4. Read the answer from all passages (the paper's separate reader, here the one that asks for the
   answer alone) or from the reasoning itself.

Differences from the original: its demonstrations are written for each data set, and its reader may
reason anew; here a repeated sentence ends the loop.

Source: docs/methods.md, "IRCoT".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from jaxrag.core.checks import check_choices, check_limits
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, loops, tasks
from jaxrag.steps.candidates import search
from jaxrag.steps.tools import Needs, Tools
from jaxrag.text.sentences import sentences, word_key
from jaxrag.text.stated_answer import stated_answer
from jaxrag.types import Answer, Question

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
      loop: its limits.
      answer_from: text that the answer is read from.
      reader: prompts and decoding; roles "reason", and those that answer from passages.
      closed_tokens: most new tokens of a closed question's answer, from "passages".
      by: how a closed question is answered, from "passages"; see `kinds.By`.
    """

    name = "ircot"

    loop: Interleaving = Interleaving()
    answer_from: AnswerFrom = "passages"
    reader: steps.Reader = steps.Reader(prompts="iterative")
    closed_tokens: int = 8
    by: kinds.By = "text"

    def __post_init__(self) -> None:
        check_choices(self, answer_from=AnswerFrom)
        kinds.check_closed(self.closed_tokens, self.by)

    @property
    def needs(self) -> Needs:
        """An index, and the needs of answering."""
        return Needs(search=True) | tasks.answering_needs(self)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Interleaves retrieval with reasoning, then answers."""
        trace: steps.Trace = {}
        reply = await reason_and_answer(question, tools, self, trace)
        return Answer(question.id, reply.text, trace)


class Reasoning(tasks.Answering, Protocol):
    """The settings that `reason_and_answer` reads."""

    @property
    def loop(self) -> Interleaving:
        """Limits."""
        ...

    @property
    def answer_from(self) -> AnswerFrom:
        """Text that the answer is read from."""
        ...


async def reason_and_answer(
    question: Question, tools: Tools, config: Reasoning, trace: steps.Trace
) -> steps.Reply:
    """Interleaves retrieval with reasoning, then answers from the passages or the reasoning."""
    reasoned = await interleave(question, tools, config.loop, config.reader, trace)
    if config.answer_from == "passages":
        return await tasks.answer_from_passages(question, reasoned.rows, tools, config, trace)
    return loops.conclude(question, reasoned.sentences, config.reader, trace)


class Reasoned(NamedTuple):
    """Result of the loop.

    Attributes:
      rows: of the passages collected, first found first.
      sentences: of the reasoning, as replies whose text is one sentence.
    """

    rows: tuple[int, ...]
    sentences: tuple[steps.Reply, ...]


async def interleave(
    question: Question, tools: Tools, loop: Interleaving, reader: steps.Reader, trace: steps.Trace
) -> Reasoned:
    """Searches by the question, writes a sentence, searches by it, and so on.

    ``trace["loop"]`` tells why it ended: a sentence states the answer ("stated"), is empty
    ("empty"), or was written before ("repeated": a greedy model would go on so); or ``max_steps``
    sentences are written ("limit"). ``trace`` gets "searches" and "reasoning", too.
    """
    rows = (await search("question", question.text, loop.k, tools, trace)).ids[: loop.max_passages]
    said: list[steps.Reply] = []
    end = "limit"
    trace["reasoning"] = []
    for number in range(1, loop.max_steps + 1):
        sentence = await _next_sentence(question, rows, said, tools, loop, reader, trace)
        if not word_key(sentence.text):
            end = "empty"
            break
        if word_key(sentence.text) in {word_key(one.text) for one in said}:
            end = "repeated"
            break
        said.append(sentence)
        if stated_answer(sentence.text) is not None:
            end = "stated"
            break
        found = await search(f"sentence {number}", sentence.text, loop.k, tools, trace)
        rows = tuple(dict.fromkeys((*rows, *found.ids)))[: loop.max_passages]
    trace["loop"] = {"steps": len(trace["reasoning"]), "end": end}
    steps.record_selected(rows, tools, trace)
    return Reasoned(rows, tuple(said))


async def _next_sentence(
    question: Question,
    rows: Sequence[int],
    said: Sequence[steps.Reply],
    tools: Tools,
    loop: Interleaving,
    reader: steps.Reader,
    trace: steps.Trace,
) -> steps.Reply:
    """The first sentence that the model generates from the passages and the reasoning so far."""
    truncation: steps.Trace = {}
    reply = await steps.ask_from_passages(
        question,
        tools.retriever.passages(rows),
        tools.llm,
        dataclasses.replace(reader, answer_tokens=loop.sentence_tokens),
        truncation,
        role="reason",
        question=loops.with_choices(question),
        so_far="".join(f" {one.text}" for one in said),
    )
    reply = reply._replace(text=next(iter(sentences(reply.text)), ""))
    trace["reasoning"].append({**truncation, **reply.record(), "passages": len(rows)})
    return reply
