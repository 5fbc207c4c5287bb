"""Self-RAG's search: answers on their way, each grown by segments that are written and judged."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np

from jaxrag.engines.scheduler import gather
from jaxrag.functional import self_rag
from jaxrag.methods.self_rag import reflection, segments
from jaxrag.steps import asking as steps
from jaxrag.steps import prompts
from jaxrag.steps.tools import Tools
from jaxrag.text.stated_answer import stated_answer
from jaxrag.types import Question

Mode = Literal["checkpoint", "prompted"]
Retrieve = Literal["adaptive", "always", "never"]

_AGAIN = 2  # the place of [Continue to Use Evidence] in reflection.RETRIEVAL

_segment_scores = jax.jit(self_rag.segment_scores)
_path_score = jax.jit(self_rag.path_score, static_argnames="rule")
_retrieval_probability = jax.jit(self_rag.retrieval_probability, static_argnames="rule")


class Growing(segments.Writing, steps.Retrieval, Protocol):
    """The part of a method's config that says how answers grow; see
    `jaxrag.methods.self_rag.self_rag`.
    """

    @property
    def mode(self) -> Mode:
        """Whether judgements are reflection tokens or asked for by prompts."""
        ...

    @property
    def retrieve(self) -> Retrieve:
        """Whether there is retrieval."""
        ...

    @property
    def threshold(self) -> float:
        """The probability above which there is."""
        ...

    @property
    def beam(self) -> int:
        """Answers kept after each segment of a long one."""
        ...

    @property
    def most(self) -> int:
        """Most segments."""
        ...

    @property
    def weights(self) -> self_rag.Weights:
        """What the parts of a score count."""
        ...

    @property
    def fidelity(self) -> self_rag.Rule:
        """The paper's way or the released one."""
        ...


class Segment(NamedTuple):
    """A part of an answer, from the passage at a row or from none; ``text`` is told to go on."""

    row: int | None
    id: str | None
    reply: steps.Reply
    scores: dict[str, float]
    text: str


class Beam(NamedTuple):
    """An answer on its way, and the rows that its last search found."""

    segments: tuple[Segment, ...] = ()
    score: float = 0.0
    over: bool = False
    rows: tuple[int, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """What it has written, as the next prompt tells it."""
        return tuple(segment.text for segment in self.segments)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it has written, as a reader sees it."""
        return tuple(reflection.whole(s.reply.text, s.reply.generation) for s in self.segments)


async def step(
    question: Question, beams: list[Beam], tools: Tools, config: Growing, trace: steps.Trace
) -> list[Beam]:
    """Each beam with each next segment that it may have, the best ones first."""
    live = [beam for beam in beams if not beam.over]
    number = len(trace["steps"]) + 1
    grown = await gather(*(_grow(question, beam, number, tools, config) for beam in live))
    trace["steps"].append({"segment": number, "beams": [record for _, record, _ in grown]})
    if searches := [search for _, _, found in grown for search in found]:
        trace.setdefault("searches", []).extend(searches)
    pool = [beam for beam in beams if beam.over]
    pool += itertools.chain.from_iterable(children for children, _, _ in grown)
    pool.sort(key=lambda beam: -beam.score)  # equal scores: in the order of the search
    return pool[: config.beam] if config.form == "long" else pool


async def _grow(
    question: Question, beam: Beam, number: int, tools: Tools, config: Growing
) -> tuple[list[Beam], steps.Trace, list[dict[str, Any]]]:
    """A beam's continuations, the record of them, and the searches made for them."""
    record = await _decide(question, beam, tools, config)
    rows: tuple[int | None, ...] = ()
    searches: list[dict[str, Any]] = []
    if record["decision"] == "continue":
        rows = (beam.segments[-1].row,)
    elif record["decision"] == "retrieve":
        beam, searches = await _search(question, beam, number, tools, config)
        rows = beam.rows
    rows = rows or (None,)
    found = await gather(*(_segment(question, beam, row, tools, config) for row in rows))
    children = [_with(beam, segment, config) for segment in found if segment is not None]
    record["so_far"] = " ".join(beam.sentences)
    record["candidates"] = [
        {"id": last.id, "text": last.reply.text, **last.scores, "path": child.score}
        for child in children
        for last in child.segments[-1:]
    ]
    ended = len(children) < len(rows)  # there was no more to say
    if ended and (beam.segments or not children):
        children.append(beam._replace(over=True))
    return children, record, searches


async def _decide(question: Question, beam: Beam, tools: Tools, config: Growing) -> steps.Trace:
    """Whether the next segment needs passages, or the one of the last segment again."""
    if config.retrieve != "adaptive":
        decision = "retrieve" if config.retrieve == "always" else "no"
        return {"decision": decision, "probability": None}
    again = False
    if config.mode == "checkpoint":
        asked, _ = segments.instruction(question, beam.parts, config)
        found = await reflection.logprobs(asked, reflection.RETRIEVAL, tools.llm)
        shown = bool(beam.segments) and beam.segments[-1].row is not None
        again = shown and int(np.argmax(found)) == _AGAIN
    else:
        told = segments.told(question, beam.parts)
        name = config.reader.prompts
        found = await reflection.by_words(name, "retrieval_needed", 2, tools.llm, **told)
    rule = config.fidelity if config.form == "short" else "paper"
    probability = float(_retrieval_probability(found[:2], rule=rule))
    decision = "retrieve" if probability > config.threshold else "no"
    return {"decision": "continue" if again else decision, "probability": probability}


async def _search(
    question: Question, beam: Beam, number: int, tools: Tools, config: Growing
) -> tuple[Beam, list[dict[str, Any]]]:
    """The beam with the rows found for its next segment, and the searches made."""
    once = config.fidelity == "released"
    if beam.rows and once:
        return beam, []
    last = () if once else beam.sentences[-1:]
    found: steps.Trace = {}
    asked = dataclasses.replace(question, text=" ".join([question.text, *last]))
    rows = await steps.retrieve(asked, tools, config, found)
    path = {} if config.form == "short" else {"path": f"segment {number}"}
    return beam._replace(rows=rows), [{**search, **path} for search in found["searches"]]


def _with(beam: Beam, segment: Segment, config: Growing) -> Beam:
    """The beam with one more segment."""
    segments = (*beam.segments, segment)
    scores = np.zeros(config.most, np.float32)
    scores[: len(segments)] = [one.scores["total"] for one in segments]
    where = np.arange(config.most) < len(segments)
    score = float(_path_score(scores, where=where, rule=config.fidelity))
    return beam._replace(segments=segments, score=score, over=_over(segment.reply, config))


def _over(reply: steps.Reply, config: Growing) -> bool:
    """Whether the answer ends with this segment; a chat's model ends every one."""
    ended = reply.generation.finish_reason == "end"
    if config.form == "short":
        return True
    if ended and not prompts.load(config.reader.prompts).role("continue_direct").chat:
        return True
    stated = config.mode == "prompted" and stated_answer(reply.text) is not None
    return stated and (ended or reply.raw.rstrip().endswith((".", "!", "?")))


async def _segment(
    question: Question, beam: Beam, row: int | None, tools: Tools, config: Growing
) -> Segment | None:
    """The next segment from the passage at a row, or from none; None where there is no more."""
    write = segments.by_tokens if config.mode == "checkpoint" else segments.by_prompts
    reply, critique, part = await write(question, beam.parts, row, tools, config)
    if critique is None or (config.form == "long" and not reply.text):
        return None
    count = len(reply.generation.logprobs)
    width = max(16, 1 << max(count - 1, 0).bit_length())  # a power of two: few programs
    logprobs = np.zeros(width, np.float32)
    logprobs[:count] = reply.generation.logprobs
    found = _segment_scores(
        critique,
        logprobs,
        where=np.arange(width) < count,
        weights=config.weights,
    )
    scores = {name: float(value) for name, value in found._asdict().items()}
    name = None if row is None else tools.retriever.passages([row])[0].id
    return Segment(row, name, reply, scores, part)
