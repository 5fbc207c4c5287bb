"""DRAGIN (Su et al. 2024): retrieves where the model is unsure of a word that the text depends on.

An answer that reasons is written. Each of its tokens has a score (RIND): the entropy of the
prediction that it was drawn from, times the most attention that a later token pays to it, times 0
for stopwords. At the first score above ``theta`` the text is cut before the word; the words that
this token pays most attention to, among those of the question and of the text so far, become the
query (QFS), in the order in which they stand; the text is written on from the passages found, which
stay until others replace them. It ends with a text that needs nothing, or after ``max_retrievals``.

What is our reading. Attentions are the last layer's, of whatever the model reads, mean over heads;
the released code lets it read the generated text alone for RIND, and question and text for QFS,
takes maxima before the mean over heads and counts a token's attention to itself. The paper's scores
are taken as they are; the released code divides the attention received by the sentence's mean
(``fidelity="released"``), to which its thresholds belong. There a hit drops its whole sentence and
one sentence is written from passages before the model goes on without any; here, as in the paper,
the text is cut at the word. As there, the first sentence from new passages is not scored: or the
same word would be cut again and again. The query there is made of content words by part of speech
(spaCy); here of distinct words that are no stopwords, by a list of ours, and a word's attention is
the sum over its tokens wherever it stands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrag.engines.inspection import Inspection
from jaxrag.functional import dragin
from jaxrag.methods import kinds, loops, prompts, steps
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.inspection_tool import Word, distinct, words_of, words_of_tokens
from jaxrag.methods.selectors import Top
from jaxrag.methods.tools import Tools
from jaxrag.types import Answer, InputError, Prompt, Question

Fidelity = Literal["paper", "released"]


@dataclasses.dataclass(frozen=True)
class Config:
    """As released for HotpotQA and Llama-2-7b-chat, but for ``max_retrievals``, which is ours.

    Attributes:
      theta: the score from which on it retrieves.
      fidelity: whether the attention received is taken as it is ("paper") or by the mean of its
        sentence ("released"); ``theta`` depends on it.
      query_words: most words of a query.
      candidates, select: which passages, for each query.
      reader: prompts and decoding; its ``answer_tokens`` are not used.
      tokens: most new tokens of a generation.
      max_retrievals: most searches; what is written after the last is not scored.
    """

    theta: float = 1.4
    fidelity: Fidelity = "released"
    query_words: int = 35
    candidates: steps.Candidates = OnePath(n=3)
    select: steps.Selector = Top(k=3)
    reader: steps.Reader = steps.Reader(prompts="inspecting")
    tokens: int = 100
    max_retrievals: int = 5

    def __post_init__(self) -> None:
        loops.check_limits(
            query_words=self.query_words, tokens=self.tokens, max_retrievals=self.max_retrievals
        )
        if self.fidelity not in get_args(Fidelity) or not self.theta >= 0:
            raise InputError(
                f"fidelity is {self.fidelity!r} and theta {self.theta}: allowed are "
                f"{', '.join(get_args(Fidelity))}, and scores of 0 or more."
            )

    @property
    def needs_inspection(self) -> bool:
        """Entropies and attentions are of the model's inside."""
        return True


class _Trigger(NamedTuple):
    """Where a text is cut, and why.

    Attributes:
      word: the first word that is cut off.
      start: the first character of the continuation that it stands in.
      kept: tokens of that continuation before it.
      token: the number in the continuation of the token that asked for it.
    """

    word: Word
    start: int
    kept: int
    token: int


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Writes and retrieves until nothing is needed."""
    if kinds.role_of(question) == "multiple_choice" and question.answers:
        kinds.gold_option(question)  # an answer that is no choice could never be met
    trace: steps.Trace = {"generations": []}
    said: list[steps.Reply] = []
    rows: tuple[int, ...] | None = None
    for left in range(config.max_retrievals, -1, -1):
        record: dict[str, Any] = {"passages": len(rows or ())}
        trace["generations"].append(record)
        prompt, reply = await _write(question, said, rows, tools, config, record)
        trigger = None
        if reply.text and left:
            seen = await tools.inside.look(prompt, reply.raw)
            trigger = _trigger(seen, len(reply.raw), rows is not None, config, record)
        if trigger is None:
            said.append(reply)
            break
        said.append(_cut(reply, trigger))
        query = _query(seen, _context(seen, question, said[:-1], trigger), trigger, config)
        rows = await _retrieve(question, query, tools, config, trace, record)
    reply = loops.conclude(question, said, config.reader, trace)
    _record_gate(trace, config)
    return Answer(question.id, reply.text, trace)


async def _write(
    question: Question,
    said: Sequence[steps.Reply],
    rows: Sequence[int] | None,
    tools: Tools,
    config: Config,
    record: dict[str, Any],
) -> tuple[Prompt, steps.Reply]:
    """The rest of the answer as the model sees it now, and what it was asked."""
    reader = dataclasses.replace(config.reader, answer_tokens=config.tokens)
    role = "complete_direct" if rows is None else "complete"
    told = {"question": loops.told(question), "so_far": _so_far(said)}
    if rows is not None:
        passages = tools.index.passages(rows)
        told["passages"] = steps.show_passages(
            question, passages, tools.llm, reader, record, role=role, **told
        )
    prompt = prompts.load(reader.prompts).role(role).prompt(**told)
    reply = await steps.ask(role, question, tools.llm, reader, **told)
    record |= reply.record()
    return prompt, reply


def _so_far(said: Sequence[steps.Reply]) -> str:
    """What has been written, a blank before each part."""
    return "".join(f" {reply.text}" for reply in said if reply.text)


def _width(count: int) -> int:
    """A power of two: few programs."""
    return max(16, 1 << max(count - 1, 0).bit_length())


def _padded(array: np.ndarray, *shape: int) -> np.ndarray:
    found = np.zeros(shape, array.dtype)
    found[tuple(map(slice, array.shape))] = array
    return found


@jax.jit
def _scores(
    entropies: Float[Array, " t"],
    attention: Float[Array, "t t"],
    content: Bool[Array, " t"],
    sentences: Int[Array, " t"],
    where: Bool[Array, " t"],
    relative: Bool[Array, ""],
) -> tuple[Float[Array, " t"], Float[Array, " t"]]:
    """RIND of each token of a continuation, and the attention that it goes by."""
    received = dragin.received(attention, where=where)
    shared = dragin.relative(received, sentences, where=where)
    received = jnp.where(relative, shared, received)
    return dragin.rind(entropies, received, content), received


def _trigger(
    seen: Inspection, length: int, informed: bool, config: Config, record: dict[str, Any]
) -> _Trigger | None:
    """The first word of a continuation of ``length`` characters that needs to be looked up."""
    start = len(seen.text) - length
    words, t = words_of(seen.text, start), len(seen.logprobs)
    own = words_of_tokens(seen, words)[len(seen.spans) - t :]
    if own.max(initial=-1) < 0:
        return None
    content = np.array([at >= 0 and words[at].content for at in own])
    # a blank between sentences is the first one's
    sentences = np.maximum.accumulate([words[at].sentence if at >= 0 else 0 for at in own])
    width = _width(t)
    scores, received = _scores(
        _padded(seen.entropies, width),
        _padded(seen.attention[:, len(seen.spans) - t :], width, width),
        _padded(content, width),
        _padded(np.unique(sentences, return_inverse=True)[1].astype(np.int32), width),
        np.arange(width) < t,
        np.bool_(config.fidelity == "released"),
    )
    allowed = content & (sentences > 0) if informed else content
    scored = np.where(allowed, np.asarray(scores)[:t], 0.0)
    record["highest"] = float(scored.max())
    first = dragin.first_above(jnp.asarray(scored), config.theta, where=jnp.asarray(allowed))
    token = int(first)
    if token < 0:
        return None
    word = words[own[token]]
    record["trigger"] = {
        "word": word.text,
        "score": float(scored[token]),
        "entropy": float(seen.entropies[token]),
        "received": float(received[token]),
    }
    return _Trigger(word, start, int(np.argmax(own == own[token])), token)


def _context(
    seen: Inspection, question: Question, said: Sequence[steps.Reply], trigger: _Trigger
) -> list[Word]:
    """The words that a query may be made of: of the question, the text so far, what is kept."""
    end, found = trigger.start, list[Word]()
    for part in (_so_far(said).strip(), loops.told(question)):
        at = seen.text.rfind(part, 0, end) if part else -1
        if at >= 0:
            found, end = [*words_of(seen.text, at, at + len(part)), *found], at
    found += words_of(seen.text, trigger.start, trigger.word.start)
    return [one for one in found if one.content]


@jax.jit
def _chosen(
    attention: Float[Array, " t"],
    words: Int[Array, " t"],
    where: Bool[Array, " w"],
    n: Int[Array, ""],
) -> Bool[Array, " w"]:
    weights = dragin.word_weights(attention, words, count=len(where))
    return dragin.heaviest(weights, n, where=where)


def _query(seen: Inspection, words: Sequence[Word], trigger: _Trigger, config: Config) -> str:
    """The words that the trigger pays most attention to, in their order; "" for none."""
    if not words:
        return ""
    same = distinct(words)
    own = words_of_tokens(seen, words)
    own = np.where(own >= 0, same[own], -1)
    tokens, count = _width(len(own)), _width(len(words))
    numbers = np.full(tokens, -1, np.int32)
    numbers[: len(own)] = own
    where = np.zeros(count, np.bool_)
    where[: len(words)] = same == np.arange(len(words))  # the first of each
    attention = _padded(seen.attention[trigger.token], tokens)
    kept = np.asarray(_chosen(attention, numbers, where, np.int32(config.query_words)))
    return " ".join(word.bare for word, keep in zip(words, kept, strict=False) if keep)


def _cut(reply: steps.Reply, trigger: _Trigger) -> steps.Reply:
    """The reply before the word."""
    text, made = reply.raw[: trigger.word.start - trigger.start].strip(), reply.generation
    made = dataclasses.replace(
        made,
        text=text,
        tokens=made.tokens[: trigger.kept],
        logprobs=made.logprobs[: trigger.kept],
        finish_reason="stop",
    )
    return reply._replace(text=text, raw=text, generation=made)


async def _retrieve(
    question: Question,
    query: str,
    tools: Tools,
    config: Config,
    trace: steps.Trace,
    record: dict[str, Any],
) -> tuple[int, ...]:
    """Passages for a query, or for the question where it is empty."""
    found: steps.Trace = {}
    asked = dataclasses.replace(question, text=query or question.text)
    rows = await steps.retrieve(asked, tools, config, found)
    path = f"generation {len(trace['generations'])}"
    searches = [{**search, "path": path} for search in found["searches"]]
    trace.setdefault("searches", []).extend(searches)
    record |= {"query": query, "ids": found["selected"]["ids"]}
    return rows


def _record_gate(trace: steps.Trace, config: Config) -> None:
    """What was decided, over all generations, and the passages that were read."""
    highest = [one["highest"] for one in trace["generations"] if "highest" in one]
    ids = [passage for one in trace["generations"] for passage in one.get("ids", ())]
    trace["gate"] = {
        "name": "dragin",
        "retrieve": bool(ids),
        "highest": max(highest, default=None),
        "theta": config.theta,
        "retrieved": sum("query" in one for one in trace["generations"]),
        "of": len(highest),
    }
    if ids:
        trace["selected"] = {"ids": list(dict.fromkeys(ids))}
