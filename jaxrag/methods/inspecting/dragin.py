"""DRAGIN (Su et al. 2024): retrieves at an uncertain word that the following text depends on.

1. Write an answer with its reasoning.
2. Score each token (RIND): the entropy of its distribution, times the greatest attention that a
   later token pays to it, times 0 for stopwords.
3. If no score exceeds ``theta``, this is the end of the answer.
4. Otherwise cut the text before the first such word. The query (QFS) is made of the words of the
   question and of the text so far that this token pays most attention to, in their order.
5. Continue the text from the passages found, which stay until others replace them; go to 2. After
   ``max_retrievals`` searches, the text is not scored any more.

Attention is the last layer's, mean over heads, over all that the model reads. In ``fidelity``
"released" it is divided by the mean of the sentence. As released, the first sentence from new
passages is not scored, or the same word would be cut again and again.

Source and differences from the released code: docs/methods, "DRAGIN".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrag.core.checks import check_choices, check_limits
from jaxrag.engines.local.inspection import Inspection
from jaxrag.functional import dragin
from jaxrag.functional.on_host import on_host
from jaxrag.methods.inspecting.words import Word, distinct, words_of, words_of_tokens
from jaxrag.steps import loops
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Candidates, Episode, PassageSelector, Pool
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader, Reply, program_size
from jaxrag.steps.tools import Needs
from jaxrag.types import InputError

Fidelity = Literal["paper", "released"]

_first_above = on_host(dragin.first_above)


@dataclasses.dataclass(frozen=True)
class Config:
    """As released for HotpotQA and Llama-2-7b-chat, but for ``max_retrievals``, which is ours.

    Attributes:
      theta: retrieve at a score above it.
      fidelity: as above; ``theta`` depends on it.
      reader: prompts and decoding; its ``answer_tokens`` are not used.
      max_retrievals: most searches; text after the last is not scored.
    """

    name = "dragin"
    needs = Needs(inspection=True)

    theta: float = 1.4
    fidelity: Fidelity = "released"
    query_words: int = 35
    candidates: Candidates = OnePath(n=3)
    select: PassageSelector = Top(k=3)
    reader: Reader = Reader(prompts="inspecting")
    tokens: int = 100
    max_retrievals: int = 5

    def __post_init__(self) -> None:
        self.reader.check_stated(self.name)
        check_limits(
            query_words=self.query_words, tokens=self.tokens, max_retrievals=self.max_retrievals
        )
        check_choices(self, fidelity=Fidelity)
        if not self.theta >= 0:
            raise InputError(f"theta is {self.theta}; scores are 0 or more.")

    async def answer(self, episode: Episode) -> Reply:
        """Writes and retrieves until no word needs passages."""
        question = loops.with_choices(episode.question)
        generations: list[dict[str, Any]] = []
        said: list[Reply] = []
        pool: Pool | None = None
        for left in range(self.max_retrievals, -1, -1):
            reply = await episode.ask(
                "complete_direct" if pool is None else "complete",
                question=question,
                so_far=loops.so_far(said),
                passages=pool,
                limit=self.tokens,
            )
            record: dict[str, Any] = {"passages": len(pool or ()), **reply.record()}
            generations.append(record)
            trigger = None
            if reply.text and left:
                seen = await episode.inspection.look(reply.prompt, reply.raw)
                trigger = _find_trigger(
                    seen,
                    len(reply.raw),
                    self.theta,
                    record,
                    relative=self.fidelity == "released",
                    informed=pool is not None,
                )
            if trigger is None:
                said.append(reply)
                break
            said.append(_cut(reply, trigger))
            words = _context(seen, question, loops.so_far(said[:-1]).strip(), trigger)
            query = _query(seen, words, trigger, self.query_words)
            path = f"generation {len(generations)}"
            part = episode.about(query or episode.question.text, path=path)
            pool = await loops.retrieve(part, self.candidates, self.select)
            record |= {"query": query, "ids": episode.ids(pool)}
        episode.note(generations=generations)
        highest = [record["highest"] for record in generations if "highest" in record]
        episode.decided(
            "dragin",
            any(record.get("ids") for record in generations),
            highest=max(highest, default=None),
            theta=self.theta,
            retrieved=sum("query" in record for record in generations),
            of=len(highest),
        )
        return loops.answer_stated(episode, said)


class Trigger(NamedTuple):
    """Where a text is cut, and why.

    Attributes:
      start: the first character of the continuation that contains it.
      kept: number of tokens of that continuation before it.
      token: index in the continuation of the token whose score is too high.
    """

    word: Word
    start: int
    kept: int
    token: int


def _cut(reply: Reply, trigger: Trigger) -> Reply:
    """The reply before the trigger."""
    text, generation = reply.raw[: trigger.word.start - trigger.start].strip(), reply.generation
    generation = dataclasses.replace(
        generation,
        text=text,
        tokens=generation.tokens[: trigger.kept],
        logprobs=generation.logprobs[: trigger.kept],
        finish_reason="stop",
    )
    return reply._replace(text=text, raw=text, generation=generation)


def _padded(array: np.ndarray, *shape: int) -> np.ndarray:
    padded = np.zeros(shape, array.dtype)
    padded[tuple(map(slice, array.shape))] = array
    return padded


@on_host
def _scores(
    entropies: Float[Array, " t"],
    attention: Float[Array, "t t"],
    content: Bool[Array, " t"],
    sentences: Int[Array, " t"],
    where: Bool[Array, " t"],
    relative: Bool[Array, ""],
) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
    """RIND of each token of a continuation, and the attention it received."""
    received = dragin.received(attention, where=where)
    shared = dragin.relative(received, sentences, where=where)
    received = jnp.where(relative, shared, received)
    return dragin.rind(entropies, received, content), received


def _find_trigger(
    seen: Inspection,
    length: int,
    theta: float,
    record: dict[str, Any],
    *,
    relative: bool,
    informed: bool,
) -> Trigger | None:
    """The first word with a token whose RIND exceeds ``theta``, or None.

    Args:
      seen: entropies and attention over prompt and continuation.
      length: characters of the continuation.
      theta: the threshold.
      record: gets the highest score and the trigger.
      relative: divide the attention received by the mean of its sentence.
      informed: do not score the first sentence.
    """
    start = len(seen.text) - length
    words, t = words_of(seen.text, start), len(seen.logprobs)
    indices = words_of_tokens(seen, words)[len(seen.spans) - t :]
    if indices.max(initial=-1) < 0:
        return None
    content = np.array([at >= 0 and words[at].content for at in indices])
    # a blank between sentences belongs to the first
    sentences = np.maximum.accumulate([words[at].sentence if at >= 0 else 0 for at in indices])
    width = program_size(t)
    scores, received = _scores(
        _padded(seen.entropies, width),
        _padded(seen.attention[:, len(seen.spans) - t :], width, width),
        _padded(content, width),
        _padded(np.unique(sentences, return_inverse=True)[1].astype(np.int32), width),
        np.arange(width) < t,
        np.bool_(relative),
    )
    allowed = content & (sentences > 0) if informed else content
    scored = np.where(allowed, scores[:t], 0.0)
    record["highest"] = float(scored.max())
    token = int(_first_above(_padded(scored, width), theta, where=_padded(allowed, width)))
    if token < 0:
        return None
    word = words[indices[token]]
    record["trigger"] = {
        "word": word.text,
        "score": float(scored[token]),
        "entropy": float(seen.entropies[token]),
        "received": float(received[token]),
    }
    return Trigger(word, start, int(np.argmax(indices == indices[token])), token)


def _context(seen: Inspection, question: str, so_far: str, trigger: Trigger) -> list[Word]:
    """The content words of the question and of the text before the trigger."""
    end, words = trigger.start, list[Word]()
    for part in (so_far, question):
        at = seen.text.rfind(part, 0, end) if part else -1
        if at >= 0:
            words, end = [*words_of(seen.text, at, at + len(part)), *words], at
    words += words_of(seen.text, trigger.start, trigger.word.start)
    return [word for word in words if word.content]


@on_host
def _heaviest(
    attention: Float[Array, " t"],
    words: Int[Array, " t"],
    where: Bool[Array, " w"],
    n: Int[Array, ""],
) -> Bool[Array, " w"]:
    weights = dragin.word_weights(attention, words, count=len(where))
    return dragin.heaviest(weights, n, where=where)


def _query(seen: Inspection, words: Sequence[Word], trigger: Trigger, count: int) -> str:
    """The ``count`` words that the trigger attends to most, in text order; "" without words."""
    if not words:
        return ""
    same = distinct(words)
    indices = words_of_tokens(seen, words)
    indices = np.where(indices >= 0, same[indices], -1)
    tokens, width = program_size(len(indices)), program_size(len(words))
    numbers = np.full(tokens, -1, np.int32)
    numbers[: len(indices)] = indices
    where = np.zeros(width, np.bool_)
    where[: len(words)] = same == np.arange(len(words))  # the first of each
    attention = _padded(seen.attention[trigger.token], tokens)
    kept = _heaviest(attention, numbers, where, np.int32(count))
    return " ".join(word.bare for word, keep in zip(words, kept, strict=False) if keep)
