"""What iterative methods share: limits, sentences, one search after the other, and IRCoT's loop.

The loop, and the three strategies that Adaptive-RAG chooses from, stand here since methods do not
import each other. Every loop ends: it makes at most so many steps of so many tokens, and writes how
it ended into the trace under "loop".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

from jaxrag.data import question_kinds
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, prompts, tasks
from jaxrag.steps.candidates import search
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.tools import Tools
from jaxrag.text.sentences import sentences, word_key
from jaxrag.text.stated_answer import last_sentence, stated_answer
from jaxrag.types import Answer, Generation, InputError, Question

Strategy = Literal["none", "single", "multi"]
"""How a question is answered: without retrieval, after one search, or by IRCoT's loop."""

AnswerFrom = Literal["passages", "reasoning"]
"""What a loop's answer is read from: all passages that it found, or the sentences it wrote."""


def check_limits(**limits: int) -> None:
    """Refuses limits below 1; keywords are the settings' names."""
    for name, limit in limits.items():
        if limit < 1:
            raise InputError(f"{name} is {limit}; it must be at least 1.")


def told(question: Question) -> str:
    """The question, with lettered choices where it has some."""
    fields = kinds.fields(question)
    return f"{fields['question']}\n{fields['choices']}" if fields["choices"] else fields["question"]


@dataclasses.dataclass(frozen=True)
class Interleaving:
    """Limits of IRCoT's loop (Trivedi et al. 2023, section 3).

    Attributes:
      k: passages of each search; the paper tunes 2 to 8.
      max_passages: most passages collected; later ones are not added (15 in the paper).
      max_steps: most sentences (8 in the paper).
      sentence_tokens: most new tokens from which a sentence is taken.
    """

    k: int = 4
    max_passages: int = 15
    max_steps: int = 8
    sentence_tokens: int = 64

    def __post_init__(self) -> None:
        limits = {f"loop.{name}": value for name, value in dataclasses.asdict(self).items()}
        check_limits(**limits)


class Reasoned(NamedTuple):
    """What the loop brought.

    Attributes:
      rows: of the passages collected, first found first.
      said: the sentences kept, as replies whose text is one sentence.
      ended: why it ended, see `interleave`.
    """

    rows: tuple[int, ...]
    said: tuple[steps.Reply, ...]
    ended: str


async def interleave(
    question: Question,
    tools: Tools,
    loop: Interleaving,
    reader: steps.Reader,
    trace: steps.Trace,
) -> Reasoned:
    """Searches by the question, then writes a sentence, searches by it, and so on.

    It ends where a sentence states the answer ("stated"), where none comes ("empty"), where one
    comes again ("repeated": the greedy model would go on so), or after ``max_steps`` ("limit").
    Each sentence is the first one of a generation from all passages so far.

    Args:
      question: of any kind.
      tools: the model and the index.
      loop: limits.
      reader: whose role "reason" writes.
      trace: gets "searches", the sentences under "reasoning", and the end under "loop".
    """
    rows = (await search("question", question.text, loop.k, tools, trace)).ids
    rows, said, ended = rows[: loop.max_passages], [], "limit"
    trace["reasoning"] = []
    for number in range(1, loop.max_steps + 1):
        reply = await _next_sentence(question, rows, said, tools, loop, reader, trace)
        stop = _ends(reply, said)
        if stop in ("empty", "repeated"):
            ended = stop
            break
        said.append(reply)
        if stop:
            ended = stop
            break
        found = await search(f"sentence {number}", reply.text, loop.k, tools, trace)
        rows = tuple(dict.fromkeys((*rows, *found.ids)))[: loop.max_passages]
    trace["loop"] = {"steps": len(trace["reasoning"]), "end": ended}
    steps.record_selected(rows, tools, trace)
    return Reasoned(rows, tuple(said), ended)


def _ends(reply: steps.Reply, said: Sequence[steps.Reply]) -> str:
    """Why the loop ends with this sentence; "" where it goes on."""
    if not word_key(reply.text):
        return "empty"
    if word_key(reply.text) in {word_key(one.text) for one in said}:
        return "repeated"
    return "stated" if stated_answer(reply.text) is not None else ""


async def _next_sentence(
    question: Question,
    rows: Sequence[int],
    said: Sequence[steps.Reply],
    tools: Tools,
    loop: Interleaving,
    reader: steps.Reader,
    trace: steps.Trace,
) -> steps.Reply:
    reader = dataclasses.replace(reader, answer_tokens=loop.sentence_tokens)
    record: dict[str, Any] = {}
    reply = await steps.ask_from_passages(
        question,
        tools.retriever.passages(rows),
        tools.llm,
        reader,
        record,
        role="reason",
        question=told(question),
        so_far="".join(f" {one.text}" for one in said),
    )
    reply = reply._replace(text=next(iter(sentences(reply.text)), ""))
    trace["reasoning"].append({**record, **reply.record(), "passages": len(rows)})
    return reply


class Looping(tasks.Answering, Protocol):
    """The part of a config that says how the loop runs and what its answer is read from."""

    @property
    def loop(self) -> Interleaving:
        """Limits."""
        ...

    @property
    def answer_from(self) -> AnswerFrom:
        """What the answer is read from."""
        ...


class Strategies(Looping, steps.Retrieval, Protocol):
    """The part of a config that says how each of the three strategies answers."""


def strategy_needs(config: Strategies) -> Needs:
    """What the strategies that search require, and answering."""
    found = needs_of(candidates=config.candidates, select=config.select)
    return Needs(search=True) | found | tasks.answering_needs(config)


def check_answer_from(answer_from: AnswerFrom) -> None:
    """Refuses what no answer can be read from."""
    if answer_from not in get_args(AnswerFrom):
        raise InputError(
            f"answer_from is {answer_from!r}; allowed: {', '.join(get_args(AnswerFrom))}."
        )


async def reason_and_answer(
    question: Question, tools: Tools, config: Looping, trace: steps.Trace
) -> steps.Reply:
    """IRCoT: the loop, then the answer from its passages or from what it wrote."""
    reasoned = await interleave(question, tools, config.loop, config.reader, trace)
    if config.answer_from == "passages":
        return await tasks.answer_from_passages(question, reasoned.rows, tools, config, trace)
    return conclude(question, reasoned.said, config.reader, trace)


def conclude(
    question: Question, said: Sequence[steps.Reply], reader: steps.Reader, trace: steps.Trace
) -> steps.Reply:
    """What the sentences say the answer is; the trace marks as junk that they state none.

    Then their last sentence stands for the answer. u is over all tokens of all generations.
    """
    text = " ".join(one.text for one in said)
    stated, role = stated_answer(text), question_kinds.role_of(question)
    template = prompts.load(reader.prompts).role(kinds.asked_role(question))
    read = kinds.read(stated or last_sentence(text), question, template)
    parts = [one.generation for one in said]
    whole = Generation(
        text,
        tuple(token for part in parts for token in part.tokens),
        tuple(logprob for part in parts for logprob in part.logprobs),
        parts[-1].finish_reason if parts else "stop",
        sum(part.prompt_tokens for part in parts),
    )
    reply = steps.Reply(read, text, steps.mean_nll(whole, reader.fidelity), whole)
    trace["task"] = "open" if role == "context" else role
    trace["answer"] = {**reply.record(), "junk": stated is None}
    kinds.note_option(read, question, trace)
    return reply


async def answer_by(
    strategy: Strategy, question: Question, tools: Tools, config: Strategies, trace: steps.Trace
) -> Answer:
    """Answers by one of the three strategies of Adaptive-RAG (Jeong et al. 2024, section 3.1)."""
    if strategy == "none":
        reply = await tasks.answer_directly(question, tools, config, trace)
    elif strategy == "single":
        rows = await steps.retrieve(question, tools, config, trace)
        reply = await tasks.answer_from_passages(question, rows, tools, config, trace)
    else:
        reply = await reason_and_answer(question, tools, config, trace)
    return Answer(question.id, reply.text, trace)
