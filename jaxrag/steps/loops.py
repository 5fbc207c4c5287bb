"""Steps of methods that generate an answer in parts."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, prompts
from jaxrag.steps.tools import Tools
from jaxrag.text.stated_answer import last_sentence, stated_answer
from jaxrag.types import Generation, Question

_MARKS = (".", "!", "?")


def with_choices(question: Question) -> str:
    """The question, followed by its lettered choices or its labels if it has some."""
    fields = kinds.fields(question)
    if question.task == "labels":
        return f"{fields['question']}\nOne of: {fields['choices']}"
    return f"{fields['question']}\n{fields['choices']}" if fields["choices"] else fields["question"]


def so_far(said: Sequence[steps.Reply]) -> str:
    """The text of replies, a blank before each that is not empty."""
    return "".join(f" {reply.text}" for reply in said if reply.text)


def with_full_stop(text: str) -> str:
    """A sentence with the full stop that a stop string removed."""
    return text if not text or text.endswith(_MARKS) else f"{text}."


def is_last(reply: steps.Reply, reader: steps.Reader) -> bool:
    """Whether the answer ends with this sentence.

    A chat model ends every sentence, so the end token counts for plain text alone. A sentence that
    states the answer is the last if it is complete; one that a stop string ended inside, as after
    "St." in "St. Petersburg", has no full stop.
    """
    ended = reply.generation.finish_reason == "end"
    if not reply.text or (ended and not prompts.load(reader.prompts).role("continue_direct").chat):
        return True
    return stated_answer(reply.text) is not None and (ended or reply.raw.rstrip().endswith(_MARKS))


async def retrieve_by(
    query: str,
    path: str,
    question: Question,
    tools: Tools,
    config: steps.Retrieval,
    trace: steps.Trace,
) -> tuple[tuple[int, ...], list[str]]:
    """Rows and ids of the passages for a query; an empty query searches by the question.

    ``trace["searches"]`` gets the searches, called ``path``.
    """
    found: steps.Trace = {}
    asked = dataclasses.replace(question, text=query or question.text)
    rows = await steps.retrieve(asked, tools, config, found)
    trace.setdefault("searches", []).extend({**s, "path": path} for s in found["searches"])
    return rows, found["selected"]["ids"]


def joined(text: str, parts: Sequence[Generation]) -> Generation:
    """A generation of several parts, with the text that stands for all of them."""
    return Generation(
        text,
        tuple(itertools.chain.from_iterable(part.tokens for part in parts)),
        tuple(itertools.chain.from_iterable(part.logprobs for part in parts)),
        parts[-1].finish_reason if parts else "stop",
        sum(part.prompt_tokens for part in parts),
        "\n".join(part.reasoning for part in parts if part.reasoning),
        sum(part.reasoning_tokens for part in parts),
        tuple(itertools.chain.from_iterable(part.reasoning_logprobs for part in parts)),
    )


def conclude(
    question: Question, said: Sequence[steps.Reply], reader: steps.Reader, trace: steps.Trace
) -> steps.Reply:
    """The answer that a text states, or its last sentence, which the trace marks as junk.

    u is over all tokens of all generations.
    """
    text = so_far(said).strip()
    stated = stated_answer(text)
    template = prompts.load(reader.prompts).role(kinds.prompt_role(question))
    read = kinds.read(stated or last_sentence(text), question, template)
    whole = joined(text, [one.generation for one in said])
    reply = steps.Reply(read, text, steps.mean_nll(whole, reader), whole)
    trace["task"] = kinds.task_of(question)
    trace["answer"] = {**reply.record(), "junk": stated is None}
    kinds.note_option(read, question, trace)
    return reply
