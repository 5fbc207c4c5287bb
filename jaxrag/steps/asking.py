"""Steps of methods: prompting the language model, parsing its answers, recording the trace.

Every step records what it did in the question's ``trace`` (plain JSON).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxrag.core.checks import check_limits
from jaxrag.functional import uncertainty
from jaxrag.steps import prompts
from jaxrag.steps.prompts import truncation
from jaxrag.steps.tools import LanguageModelTool, MethodPart, Needs, Tools
from jaxrag.text.reasoning import answer_start
from jaxrag.types import Answer, Generation, Passage, Question

Trace = dict[str, Any]

_mean_nll = jax.jit(uncertainty.mean_nll, static_argnames="rule")


@dataclasses.dataclass(frozen=True)
class Reader:
    """Prompts and decoding of the language model.

    Attributes:
      prompts: a set of `jaxrag.steps.prompts`, by name or path.
      answer_tokens, passage_tokens: limits of new tokens, of an answer and of a pseudo-context or
        rationale.
      temperature: 0 is greedy decoding, as in all papers here.
      repetition_penalty: of tokens that occur in the prompt or the answer so far; 1 is none (DTR's
        released code: 1.1; see `jaxrag.engines.language_model.DecodingOptions`).
      fidelity: tokens that u counts ("paper": all but the end token; "released": all but the last).
      count_reasoning: whether u counts the tokens of reasoning before the answer, too.
      truncate: whether the passages of a prompt that is too long are cut to fit (see
        `jaxrag.steps.prompts.truncation`). Otherwise, or if not even a word of them fits, its
        question ends in an error.

    Raises:
      InputError: a limit is less than 1.
    """

    prompts: str = "dtr"
    answer_tokens: int = 32
    passage_tokens: int = 256
    temperature: float = 0.0
    repetition_penalty: float = 1.0
    fidelity: uncertainty.Rule = "paper"
    count_reasoning: bool = False
    truncate: bool = False

    def __post_init__(self) -> None:
        check_limits(answer_tokens=self.answer_tokens, passage_tokens=self.passage_tokens)

    @property
    def needs(self) -> Needs:
        """Truncation needs the model's tokenizer and length limit."""
        return Needs(prompt_length=self.truncate)


class Reply(NamedTuple):
    """An answer parsed from a generation.

    Attributes:
      text: the answer.
      raw: text of the generation.
      u: mean negative log-likelihood of its tokens in nats (DTR eq 3), see `mean_nll`.
      generation: the generation.
      junk: whether it lacks the tags that the prompt asks for.
    """

    text: str
    raw: str
    u: float
    generation: Generation
    junk: bool = False

    def record(self) -> Trace:
        """Plain JSON; an infinite u (of an empty answer) is null."""
        reasoning = self.generation.reasoning_tokens
        return {
            "text": self.text,
            "raw": self.raw,
            "u": self.u if math.isfinite(self.u) else None,
            "tokens": len(self.generation.tokens),
            **({"reasoning_tokens": reasoning} if reasoning else {}),
            "finish_reason": self.generation.finish_reason,
            **({"junk": True} if self.junk else {}),
        }


class Decision(NamedTuple):
    """A gate's decision, with the texts that it generated for it.

    Attributes:
      retrieve: whether to retrieve.
      reply: the answer without retrieval, if the gate has generated it.
      pseudo_context: the passage that the model wrote, if the gate has generated it.
    """

    retrieve: bool
    reply: Reply | None = None
    pseudo_context: str | None = None


class CandidatePool(NamedTuple):
    """Candidate passages, best first.

    Attributes:
      rows: row numbers in the corpus, without duplicates.
      scores: the scores that the passages are ordered by.
    """

    rows: tuple[int, ...]
    scores: tuple[float, ...]


class Gate(MethodPart, Protocol):
    """Decides whether to retrieve for a question."""

    def __call__(
        self, question: Question, tools: Tools, reader: Reader, trace: Trace
    ) -> Awaitable[Decision]:
        """The decision, with the texts generated for it."""
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
        """Searches by one or both texts."""
        ...


class PassageSelector(MethodPart, UsesPseudo, Protocol):
    """Selects the passages (rows, best first) for the reader."""

    def __call__(
        self, query: str, pseudo: str, pool: CandidatePool, tools: Tools, trace: Trace
    ) -> Awaitable[tuple[int, ...]]:
        """Selects among the candidates."""
        ...


class Finding(Protocol):
    """A Config with candidate passages."""

    @property
    def candidates(self) -> Candidates:
        """Searches for candidates."""
        ...

    @property
    def reader(self) -> Reader:
        """Prompts and decoding."""
        ...


class Retrieval(Finding, Protocol):
    """A Config with candidate passages and a selector."""

    @property
    def select(self) -> PassageSelector:
        """Selects the candidates to read."""
        ...


# Characters without a shape: zero-width spaces, soft hyphens, marks of writing direction.
_INVISIBLE = "\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
_ENDS = "".join(re.findall(rf"[\s{_INVISIBLE}]", "".join(map(chr, range(0x10000)))))
_EMPHASIS = r"[*_`#>\s]*"
_NAME = r"(?:(?:the|my)\s+)?(?:(?:final|short|correct|direct)\s+)?answer(?:\s+is)?"
_LABEL = re.compile(rf"^{_EMPHASIS}{_NAME}{_EMPHASIS}[:\uff1a]{_EMPHASIS}", re.I)
# lines that only mark what follows: a fence, a rule, a heading such as "### Final answer"
_RULE = re.compile(rf"`{{3}}\w*|[-*_=~#]{{3,}}|[*_#]+\s*{_NAME}[*_#\s]*", re.I)
_PAIR = re.compile(r"<\s*answer\s*>((?:(?!<\s*answer\s*>).)*?)<\s*/\s*answer\s*>", re.S | re.I)
_BEGIN = re.compile(r"<\s*answer\s*>", re.I)
_TAG = re.compile(r"<\s*/?\s*answer\s*>", re.I)
# marks at which a turn ends or the next begins, where a server leaves them in the text
_TURN = re.compile(
    r"<\|(?:end|im_end|im_start|eot_id|eom_id|return|start|assistant|user|system|endoftext|"
    r"end_of_text|start_header_id)\|>|</s>|<(?:end|start)_of_turn>|<eos>",
    re.I,
)


def parse_answer(raw: str, how: str, *, opened: bool = False) -> str:
    """Parses the answer in a text; "" if there is none.

    Reasoning is no part of it, nor what follows a mark of the turn's end. A label such as "Answer:"
    or "**Final answer:**" and emphasis around the whole are removed, but by "text".

    Args:
      raw: what the model wrote.
      how: "tags": the text of the last pair of <answer> and </answer>, in one line; without a pair,
        the rest of the first line that is not blank after the last <answer>; without tags, as
        "first_line". "first_line": the first line that is not blank, nor a label alone. "text": all
        of it, without blanks and invisible characters at its ends.
      opened: whether the prompt has opened the model's reasoning.
    """
    raw = raw[answer_start(raw, opened=opened) :]
    raw = _TURN.split(raw, maxsplit=1)[0]
    if how == "text":
        return _trimmed(raw)
    if how == "tags":
        if pairs := _PAIR.findall(raw):
            return _bare(" ".join(map(_trimmed, pairs[-1].splitlines())))
        unclosed = [part for part in _BEGIN.split(raw)[1:] if _trimmed(_TAG.sub("", part))]
        raw = _TAG.sub("", unclosed[-1] if unclosed else raw)
    lines = (_bare(line) for line in raw.splitlines())
    return next((line for line in lines if line), "")


def turn_marks(text: str) -> bool:
    """Whether a mark of a turn's end or begin stands in a text."""
    return bool(_TURN.search(text))


def _trimmed(text: str) -> str:
    return text.strip(_ENDS)


def _bare(text: str) -> str:
    """An answer without label and emphasis; "" for a line that only marks something."""
    text = _trimmed(text)
    if not text or _RULE.fullmatch(text):
        return ""
    text = _trimmed(_LABEL.sub("", text))
    for mark in ("**", "__", "*", "_", "`"):
        inner = text.removeprefix(mark).removesuffix(mark)
        both = len(inner) == len(text) - 2 * len(mark)
        # around the whole, or the end of emphasis that a label began
        if inner and mark not in inner and text.endswith(mark) and not inner[-1].isspace():
            text = inner if both or text.count(mark) == 1 else text
    return _trimmed(text)


def mean_nll(generation: Generation, reader: Reader) -> float:
    """DTR eq 3 for one generation: mean token negative log-likelihood, infinite when empty."""
    logprobs = generation.logprobs
    if reader.count_reasoning:
        logprobs = (*generation.reasoning_logprobs, *logprobs)
    count = len(logprobs)
    width = max(16, 1 << max(count - 1, 0).bit_length())  # a power of two: few programs
    padded = np.zeros(width, np.float32)
    padded[:count] = logprobs
    where, ended = np.arange(width) < count, np.bool_(generation.finish_reason == "end")
    return float(_mean_nll(padded, where=where, ends=ended, rule=reader.fidelity))


def question_text(question: Question) -> str:
    """The question with its choices, if it has some."""
    if not question.choices:
        return question.text
    return f"{question.text}\nChoices: {'; '.join(question.choices)}"


async def ask(
    role: str, question: Question, llm: LanguageModelTool, reader: Reader, /, **fields: str
) -> Reply:
    """Prompts the model for a role and parses its answer.

    ``fields`` fill in the role's prompt; one of them may replace the question.
    """
    template = prompts.load(reader.prompts).role(role)
    long = role in ("pseudo_context", "rationale")
    generation = await llm.generate(
        template.prompt(**{"question": question_text(question), **fields}),
        max_new_tokens=reader.passage_tokens if long else reader.answer_tokens,
        temperature=reader.temperature,
        repetition_penalty=reader.repetition_penalty,
        stop=template.stop,
    )
    text = parse_answer(generation.text, template.parse)
    junk = template.parse == "tags" and not _BEGIN.search(generation.text)
    return Reply(text, generation.text, mean_nll(generation, reader), generation, junk)


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
    """Prompts with passages (best first) or a text in their place; see `show_passages`."""
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
    """The passages as the prompt of a role shows them, cut if ``reader.truncate`` requires it.

    If they are cut, ``trace["truncated"]`` has the number of ``passages`` shown (the last may be
    cut), ``of`` how many, and by how many tokens the prompt was shortened (``tokens_cut``).
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
    """The answer without retrieval: the gate's, or a new one."""
    reply = decision.reply
    if reply is None:
        reply = await answer_directly(question, tools, reader, trace)
    trace["answer"] = reply.record()
    return Answer(question.id, reply.text, trace)


async def write_pseudo_context(
    question: Question, tools: Tools, reader: Reader, trace: Trace, role: str = "pseudo_context"
) -> str:
    """A passage (or, as "rationale", reasoning) that the model writes to search by.

    If it is empty, the question is searched by; the trace shows the empty text.
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
    """The pseudo-context for ``parts``; "" if no part uses it."""
    if any(part.uses_pseudo for part in parts):
        return await write_pseudo_context(question, tools, reader, trace, role)
    return ""


async def answer_from_passages(
    question: Question, rows: Sequence[int], tools: Tools, reader: Reader, trace: Trace
) -> Reply:
    """Answers from the passages at ``rows``, shown in that order."""
    passages = tools.retriever.passages(rows)
    # only for selectors that record nothing themselves
    trace.setdefault("selected", {}).setdefault("ids", [passage.id for passage in passages])
    reply = await ask_from_passages(question, passages, tools.llm, reader, trace)
    trace["answer"] = reply.record()
    return reply


def record_selected(
    rows: Sequence[int], tools: Tools, trace: Trace, scores: Sequence[float] | None = None
) -> None:
    """Records the passages to read, and their scores if given."""
    ids = [passage.id for passage in tools.retriever.passages(rows)]
    trace["selected"] = {"ids": ids} if scores is None else {"ids": ids, "scores": list(scores)}


async def find_candidates(
    question: Question, tools: Tools, config: Finding, trace: Trace
) -> CandidatePool:
    """The candidates of a question, for methods with a selection of their own."""
    pseudo = await pseudo_context_for((config.candidates,), question, tools, config.reader, trace)
    return await config.candidates(question.text, pseudo, tools, trace)


async def retrieve(
    question: Question, tools: Tools, config: Retrieval, trace: Trace
) -> tuple[int, ...]:
    """Rows of the passages to read, best first: searches for candidates and selects."""
    parts = (config.candidates, config.select)
    pseudo = await pseudo_context_for(parts, question, tools, config.reader, trace)
    pool = await config.candidates(question.text, pseudo, tools, trace)
    kept = await config.select(question.text, pseudo, pool, tools, trace)
    trace.setdefault("selected", {})["ids"] = [p.id for p in tools.retriever.passages(kept)]
    return kept
