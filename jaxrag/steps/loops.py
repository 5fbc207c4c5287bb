"""Steps of methods that generate an answer in parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from jaxrag.steps import kinds, prompts
from jaxrag.steps.episode import Candidates, Episode, PassageSelector, Pool
from jaxrag.steps.reader import Reader, Reply
from jaxrag.text.sentences import last_sentence, stated_answer
from jaxrag.types import Generation, Question

_MARKS = (".", "!", "?")


def with_choices(question: Question) -> str:
    """The question, followed by its lettered choices or its labels if it has some."""
    fields = kinds.fields(question)
    if question.task == "labels":
        return f"{fields['question']}\nOne of: {fields['choices']}"
    return f"{fields['question']}\n{fields['choices']}" if fields["choices"] else fields["question"]


def so_far(said: Sequence[Reply]) -> str:
    """The text of replies, a blank before each that is not empty."""
    return "".join(f" {reply.text}" for reply in said if reply.text)


def with_full_stop(text: str) -> str:
    """A sentence with the full stop that a stop string removed."""
    return text if not text or text.endswith(_MARKS) else f"{text}."


def is_last(reply: Reply, reader: Reader) -> bool:
    """Whether the answer ends with this sentence.

    A chat model ends every sentence, so the end token counts for plain text alone. A sentence that
    states the answer is the last if it is complete; one that a stop string ended inside, as after
    "St." in "St. Petersburg", has no full stop.
    """
    ended = reply.generation.finish_reason == "end"
    if not reply.text or (ended and not prompts.load(reader.prompts).role("continue_direct").chat):
        return True
    return stated_answer(reply.text) is not None and (ended or reply.raw.rstrip().endswith(_MARKS))


async def retrieve(episode: Episode, candidates: Candidates, select: PassageSelector) -> Pool:
    """Searches for candidates by the episode's question, and selects the passages to read."""
    query = episode.question.text
    pseudo = await episode.pseudo_for(candidates, select)
    pool = await candidates(episode, query, pseudo)
    return await episode.select(select, pool, query, pseudo)


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


def answer_stated(episode: Episode, said: Sequence[Reply], *, read: Pool | None = None) -> Reply:
    """The answer that a reasoning states, or its last sentence, which the trace marks as junk.

    u is over all tokens of its sentences; ``read`` are the passages that they were written from.
    """
    text = so_far(said).strip()
    stated = stated_answer(text)
    whole = joined(text, [reply.generation for reply in said])
    return episode.finish(
        stated or last_sentence(text), raw=text, generation=whole, junk=stated is None, read=read
    )
