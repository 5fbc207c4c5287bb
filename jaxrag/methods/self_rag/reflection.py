"""Self-RAG's judgements by a language model, of passages and of its own segments.

A Self-RAG checkpoint (Asai et al. 2024) has reflection tokens in its vocabulary, whose
probabilities are read after what they judge. Any other model is asked by prompts, and the
probabilities of its words for the same judgements replace them: an emulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxrag.engines.scheduler import gather
from jaxrag.functional.self_rag import Critique
from jaxrag.steps import prompts
from jaxrag.steps.episode import Episode
from jaxrag.steps.loops import with_full_stop
from jaxrag.types import Generation, InputError, Prompt

AGAIN = "[Continue to Use Evidence]"
RETRIEVAL = ("[Retrieval]", "[No Retrieval]", AGAIN)
RELEVANCE = ("[Relevant]", "[Irrelevant]")
SUPPORT = ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]")
UTILITY = tuple(f"[Utility:{grade}]" for grade in range(1, 6))
TOKENS = (*RETRIEVAL, *RELEVANCE, *SUPPORT, *UTILITY)

_NO_PASSAGE = np.full(3, -np.inf, np.float32)

Logprobs = Float[np.ndarray, " a"]


class JudgedGeneration(NamedTuple):
    """A segment, its judgements, and its text with the likeliest reflection tokens."""

    generation: Generation
    critique: Critique
    text: str


def check_vocabulary(episode: Episode) -> None:
    """InputError where a reflection token is several tokens, or the tokenizer is not given."""
    count = episode.room("\n", limit=0) - episode.room("\n" + "".join(TOKENS), limit=0)
    if count > len(TOKENS):
        raise InputError(
            f"The {len(TOKENS)} reflection tokens, such as {RETRIEVAL[0]}, are {count} tokens of "
            "this model's vocabulary, so it is not a Self-RAG checkpoint: load one, such "
            "as selfrag/selfrag_llama2_7b, or set method.mode=prompted."
        )


async def logprobs(prompt: Prompt, words: Sequence[str], episode: Episode) -> Logprobs:
    """Natural-log probability of each text after a prompt, summed over its tokens, float32 [a]."""
    return np.array(await episode.logprobs(prompt, words), np.float32)


async def write(
    asked: str, passage: str | None, episode: Episode, *, sentence: bool, **decoding: Any
) -> JudgedGeneration:
    """A checkpoint's next segment, from a passage or from none, with its judgements.

    Each judgement is read after the likeliest token of the one before. ``asked`` is the prompt so
    far, ``passage`` as it shows one. With ``sentence``, a stop string removed the full stop.
    """
    relevance, judged = None, RETRIEVAL[1]
    if passage is not None:
        asked = asked + RETRIEVAL[0] + passage
        relevance = await logprobs(asked, RELEVANCE, episode)
        judged = _likeliest(relevance, RELEVANCE)
    generation = await episode.model().generate(asked + judged, **decoding)
    said = judged + (whole(generation.text, generation) if sentence else generation.text)
    if relevance is None:
        utility = await logprobs(asked + said, UTILITY, episode)
        return JudgedGeneration(generation, Critique(_NO_PASSAGE[:2], _NO_PASSAGE, utility), said)
    support = await logprobs(asked + said, SUPPORT, episode)
    said += _likeliest(support, SUPPORT)
    utility = await logprobs(asked + said, UTILITY, episode)
    return JudgedGeneration(generation, Critique(relevance, support, utility), said)


def _likeliest(logprobs: Logprobs, tokens: Sequence[str]) -> str:
    return tokens[int(np.argmax(logprobs))]


async def judge(
    episode: Episode, *, question: str, answer: str, said: str, passage: str | None
) -> Critique:
    """A segment's judgements by prompts.

    Question and passage are as prompts show them; ``answer`` is of all segments, whose utility is
    judged, ``said`` the last one, whose support by the passage is.
    """
    utility = by_words(episode, "utility", 5, question=question, answer=answer)
    if passage is None:
        return Critique(_NO_PASSAGE[:2], _NO_PASSAGE, await utility)
    told = {"question": question, "passage": passage}
    return Critique(
        *await gather(
            by_words(episode, "relevance", 2, **told),
            by_words(episode, "support", 3, **told, answer=said),
            utility,
        )
    )


async def by_words(episode: Episode, role: str, count: int, **fields: str) -> Logprobs:
    """Log-probability of each of the ``count`` words of a judgement's prompt, [a]."""
    meaning = "that for yes, relevant or fully supported first, grades of utility from the least"
    template = prompts.load(episode.reader.prompts).role_with_words(role, count, meaning)
    prompt = template.prompt(**fields)
    words = [prompts.continuation(prompt, word) for word in template.words]
    return await logprobs(prompt, words, episode)


def whole(text: str, generation: Generation) -> str:
    """A sentence with the full stop that a stop string removed."""
    text = text.strip()
    return with_full_stop(text) if generation.finish_reason == "stop" else text
