"""The steps that methods are made of: asking, reading answers, recording what happened.

Every step takes the question's ``trace`` (plain JSON) and writes into it what it did.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxrag.functional import uncertainty
from jaxrag.steps import prompts
from jaxrag.steps.needs import MethodPart, Needs
from jaxrag.steps.prompts import truncation
from jaxrag.steps.tools import LanguageModelTool, Tools
from jaxrag.types import Answer, Generation, Passage, Question

Trace = dict[str, Any]

_mean_nll = jax.jit(uncertainty.mean_nll, static_argnames="rule")


@dataclasses.dataclass(frozen=True)
class Reader:
    """How the language model is asked.

    Attributes:
      prompts: a set of `jaxrag.steps.prompts`, by name or path.
      answer_tokens, passage_tokens: most new tokens of an answer; of a pseudo-context or rationale.
      temperature: 0 is greedy, as in all papers here.
      fidelity: how u counts tokens ("paper": all but the end token; "released": all but the last).
      truncate: what becomes of a prompt that the model has no room for. False: its question ends in
        an error. True: its passages (and nothing else in it) are cut to what fits, by the rule of
        `jaxrag.steps.prompts.truncation`; the error stays where not even a word of them fits.
    """

    prompts: str = "dtr"
    answer_tokens: int = 32
    passage_tokens: int = 256
    temperature: float = 0.0
    fidelity: uncertainty.Rule = "paper"
    truncate: bool = False

    @property
    def needs(self) -> Needs:
        """To cut passages to what fits, the model must tell its tokenizer and its most tokens."""
        return Needs(prompt_length=self.truncate)


class Reply(NamedTuple):
    """An answer as read from a generation, with its mean negative log-likelihood (nats)."""

    text: str
    raw: str
    u: float
    generation: Generation

    def record(self) -> Trace:
        """The reply as plain JSON; an infinite u (empty answer) is null."""
        return {
            "text": self.text,
            "raw": self.raw,
            "u": self.u if math.isfinite(self.u) else None,
            "tokens": len(self.generation.tokens),
            "finish_reason": self.generation.finish_reason,
        }


class Decision(NamedTuple):
    """A gate's verdict, with what it has already made."""

    retrieve: bool
    reply: Reply | None = None
    pseudo_context: str | None = None


class CandidatePool(NamedTuple):
    """Candidate passages: rows in the corpus without duplicates, and their order's scores."""

    rows: tuple[int, ...]
    scores: tuple[float, ...]


class Gate(MethodPart, Protocol):
    """Decides whether to retrieve for a question."""

    def __call__(
        self, question: Question, tools: Tools, reader: Reader, trace: Trace
    ) -> Awaitable[Decision]:
        """Decides, and hands on what it made on the way."""
        ...


class UsesPseudo(Protocol):
    """A part of a Config that may search or score by a pseudo-context."""

    @property
    def uses_pseudo(self) -> bool:
        """Whether a pseudo-context must be written first."""
        ...


class Candidates(MethodPart, UsesPseudo, Protocol):
    """Finds candidate passages by the query and, where ``uses_pseudo``, by a pseudo-context."""

    def __call__(
        self, query: str, pseudo: str, tools: Tools, trace: Trace
    ) -> Awaitable[CandidatePool]:
        """Searches."""
        ...


class PassageSelector(MethodPart, UsesPseudo, Protocol):
    """Picks the passages (rows, best first) that the reader gets."""

    def __call__(
        self, query: str, pseudo: str, pool: CandidatePool, tools: Tools, trace: Trace
    ) -> Awaitable[tuple[int, ...]]:
        """Selects."""
        ...


class Finding(Protocol):
    """The part of a method's config that says among which passages it chooses."""

    @property
    def candidates(self) -> Candidates:
        """Which passages come into question."""
        ...

    @property
    def reader(self) -> Reader:
        """How the model is asked."""
        ...


class Retrieval(Finding, Protocol):
    """The part of a method's config that says how evidence is found and read."""

    @property
    def select(self) -> PassageSelector:
        """Which of them are read."""
        ...


def parse_answer(raw: str, how: str) -> str:
    """Reads the answer out of a generation; junk gives "" rather than an error.

    "tags": what stands between <answer> and </answer> (an open tag runs to the end of its line);
    without tags, as "first_line". "first_line": the first line that is not blank, without a
    leading "Answer:". "text": all of it, trimmed.
    """
    if how == "tags":
        match = re.search(r"<answer>(.*?)(?:</answer>|\n|$)", raw.strip(), re.S | re.I)
        if match:
            return match.group(1).strip()
        raw = re.sub(r"</?answer>", "", raw, flags=re.I)
    if how == "text":
        return raw.strip()
    line = next((line.strip() for line in raw.splitlines() if line.strip()), "")
    return re.sub(r"^answer\s*:\s*", "", line, flags=re.I)


def mean_nll(generation: Generation, rule: uncertainty.Rule) -> float:
    """DTR eq 3 for one generation: mean token negative log-likelihood, infinite when empty."""
    count = len(generation.logprobs)
    width = max(16, 1 << max(count - 1, 0).bit_length())  # a power of two: few programs
    logprobs = np.zeros(width, np.float32)
    logprobs[:count] = generation.logprobs
    ended = np.bool_(generation.finish_reason == "end")
    return float(_mean_nll(logprobs, where=np.arange(width) < count, ends=ended, rule=rule))


def question_text(question: Question) -> str:
    """The question as the reader sees it, with its choices where it has some."""
    if not question.choices:
        return question.text
    return f"{question.text}\nChoices: {'; '.join(question.choices)}"


async def ask(
    role: str, question: Question, llm: LanguageModelTool, reader: Reader, /, **fields: str
) -> Reply:
    """Asks for one role of the reader's prompts and reads the answer.

    ``fields`` fill in the role's prompt beside the question, or a question told in another way.
    """
    template = prompts.load(reader.prompts).role(role)
    long = role in ("pseudo_context", "rationale")
    generation = await llm.generate(
        template.prompt(**{"question": question_text(question), **fields}),
        max_new_tokens=reader.passage_tokens if long else reader.answer_tokens,
        temperature=reader.temperature,
        stop=template.stop,
    )
    text = parse_answer(generation.text, template.parse)
    return Reply(text, generation.text, mean_nll(generation, reader.fidelity), generation)


async def ask_from_passages(
    question: Question,
    passages: Sequence[Passage] | str,
    llm: LanguageModelTool,
    reader: Reader,
    trace: Trace,
    /,
    *,
    role: str = "context",
    **fields: str,
) -> Reply:
    """Asks with passages (best first), or with a text that stands for them; see `show_passages`."""
    shown = show_passages(question, passages, llm, reader, trace, role=role, **fields)
    return await ask(role, question, llm, reader, passages=shown, **fields)


def show_passages(
    question: Question,
    passages: Sequence[Passage] | str,
    llm: LanguageModelTool,
    reader: Reader,
    trace: Trace,
    /,
    *,
    role: str = "context",
    **fields: str,
) -> str:
    """The passages as the prompt of a role shows them.

    Where ``reader.truncate`` had to cut them, ``trace["truncated"]`` tells how many ``passages``
    are shown (the last may be a part), ``of`` how many, and by how many tokens the prompt became
    shorter, ``tokens_cut``.
    """
    layout = prompts.load(reader.prompts)
    whole = [Passage("", "", passages)] if isinstance(passages, str) else passages

    def render(shown: Sequence[Passage]) -> str:
        return shown[0].text if isinstance(passages, str) else layout.render(shown)

    def room(shown: Sequence[Passage]) -> int:
        filled = {"question": question_text(question), **fields, "passages": render(shown)}
        prompt = layout.role(role).prompt(**filled)
        return llm.room(prompt, max_new_tokens=reader.answer_tokens)

    shown = whole
    if reader.truncate and whole and (left := room(whole)) < 0:
        shown = truncation.longest_fitting(whole, lambda some: room(some) >= 0)
        cut = room(shown) - left
        trace["truncated"] = {"passages": len(shown), "of": len(whole), "tokens_cut": cut}
    return render(shown)


async def answer_directly(question: Question, tools: Tools, reader: Reader, trace: Trace) -> Reply:
    """Answers from the model's own knowledge."""
    reply = await ask("direct", question, tools.llm, reader)
    trace["direct"] = {**reply.record(), "logprobs": list(reply.generation.logprobs)}
    return reply


async def accept(
    decision: Decision, question: Question, tools: Tools, reader: Reader, trace: Trace
) -> Answer:
    """The answer of a question that needs no retrieval: what the gate asked for, or asked now."""
    reply = decision.reply
    if reply is None:
        reply = await answer_directly(question, tools, reader, trace)
    trace["answer"] = reply.record()
    return Answer(question.id, reply.text, trace)


async def write_pseudo_context(
    question: Question, tools: Tools, reader: Reader, trace: Trace, role: str = "pseudo_context"
) -> str:
    """Has the model write the passage (or, as "rationale", the reasoning) that it would look for.

    An empty one falls back to the question itself, and the trace shows it.
    """
    reply = await ask(role, question, tools.llm, reader)
    trace["pseudo_context"] = reply.text
    return reply.text or question.text


async def pseudo_context_for(
    parts: Sequence[UsesPseudo],
    question: Question,
    tools: Tools,
    reader: Reader,
    trace: Trace,
    *,
    role: str = "pseudo_context",
) -> str:
    """The pseudo-context that ``parts`` search or score by; "" where none of them does."""
    if any(part.uses_pseudo for part in parts):
        return await write_pseudo_context(question, tools, reader, trace, role)
    return ""


async def answer_from_passages(
    question: Question, rows: Sequence[int], tools: Tools, reader: Reader, trace: Trace
) -> Reply:
    """Answers from the passages at ``rows``, shown in that order."""
    passages = tools.retriever.passages(rows)
    # selectors of passages record more; one that records nothing still shows what was read
    trace.setdefault("selected", {}).setdefault("ids", [passage.id for passage in passages])
    reply = await ask_from_passages(question, passages, tools.llm, reader, trace)
    trace["answer"] = reply.record()
    return reply


def record_selected(
    rows: Sequence[int], tools: Tools, trace: Trace, scores: Sequence[float] | None = None
) -> None:
    """Writes the passages that are read, and their scores where there are some, into the trace."""
    ids = [passage.id for passage in tools.retriever.passages(rows)]
    trace["selected"] = {"ids": ids} if scores is None else {"ids": ids, "scores": list(scores)}


async def find_candidates(
    question: Question, tools: Tools, config: Finding, trace: Trace
) -> CandidatePool:
    """The candidates of a question, for methods that choose among them in a way of their own."""
    pseudo = await pseudo_context_for((config.candidates,), question, tools, config.reader, trace)
    return await config.candidates(question.text, pseudo, tools, trace)


async def retrieve(
    question: Question, tools: Tools, config: Retrieval, trace: Trace
) -> tuple[int, ...]:
    """Rows of the passages to read: finds candidates and selects, best first."""
    parts = (config.candidates, config.select)
    pseudo = await pseudo_context_for(parts, question, tools, config.reader, trace)
    pool = await config.candidates(question.text, pseudo, tools, trace)
    kept = await config.select(question.text, pseudo, pool, tools, trace)
    trace.setdefault("selected", {})["ids"] = [p.id for p in tools.retriever.passages(kept)]
    return kept
