"""Self-RAG (Asai et al. 2024): a model that decides when to retrieve, and judges what it writes.

1. If the probability that retrieval is needed exceeds a threshold, search.
2. From each passage alone, write the next segment of the answer and judge it: is the passage
   relevant, does it support the segment, is the segment useful?
3. Score each segment by these judgements and its own probability (`jaxrag.functional.self_rag`).
4. A short answer is the best segment; for a closed question, the option with the greatest sum of
   scores over passages. A long answer is grown segment by segment, by beam search.

Two modes, of which only the first is Self-RAG. "checkpoint" needs a model trained for it, such as
selfrag/selfrag_llama2_7b, and reads its judgements from the probabilities of reflection tokens.
"prompted" is an EMULATION for any other model: prompts ask for the same judgements, and the
normalised probabilities of its words for them are scored in the same way.

Differences from the released code, in both fidelities. There a judgement is read where the model
happens to write one, and counts 0 where it does not; here every segment gets all of them, each
after the likeliest one before it. There a segment of a long answer extends to the next [Retrieval];
here it is a sentence, as in the paper. There a long answer begins without retrieval, whatever the
threshold, unless the model writes [Retrieval]. `Config.fidelity` covers the other differences.

Source: docs/methods.md, "Self-RAG".
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from jaxrag.core.checks import check_choices
from jaxrag.data import question_kinds
from jaxrag.engines.scheduler import gather
from jaxrag.functional import self_rag
from jaxrag.methods.self_rag import reflection, segments
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, loops, prompts, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.tools import Needs, Tools, needs_of
from jaxrag.text.stated_answer import stated_answer
from jaxrag.types import Answer, InputError, Question

Mode = Literal["checkpoint", "prompted"]
Retrieve = Literal["adaptive", "always", "never"]

_segment_scores = jax.jit(self_rag.segment_scores)
_path_score = jax.jit(self_rag.path_score, static_argnames="rule")
_retrieval_probability = jax.jit(self_rag.retrieval_probability, static_argnames="rule")
_option_scores = jax.jit(self_rag.option_scores, static_argnames="count")


@dataclasses.dataclass(frozen=True)
class Config:
    """Self-RAG's inference.

    Attributes:
      mode: "checkpoint" reads the reflection tokens of a model trained as Self-RAG; "prompted"
        asks any model for the same judgements; its trace says "prompted emulation".
      retrieve: "adaptive" retrieves if the probability that retrieval is needed exceeds
        ``threshold``.
      form: "short", one segment; "long", up to ``depth`` of them.
      threshold: 0.2 as released for most tasks.
      w_rel, w_sup, w_use, w_seq: weights of relevance, support, utility and the segment's own
        probability; the released commands have ``w_use=1``, and ``w_seq=0`` if they do not ask for
        sequence scores.
      candidates, select: the passages, each read alone.
      beam: number of beams of a long answer.
      depth: most segments.
      segment_tokens: most new tokens of a segment of a long answer.
      reader: prompts and decoding; ``answer_tokens`` is for short answers to open questions.
      closed_tokens: most new tokens of a short answer to a closed question.
      by: how a closed question is answered from each passage, see `kinds.By`; "text" in mode
        "checkpoint".
      fidelity: "released" follows the code where it differs from the paper: short answers compare
        the threshold with a ratio of logarithms; long ones search once, by the question (paper: for
        each segment, by question and last segment), multiply the segments' scores (the paper does
        not say; here: their mean), ignore utility and sequence scores, and end one segment before
        ``depth``.
    """

    name = "self_rag"

    mode: Mode = "checkpoint"
    retrieve: Retrieve = "adaptive"
    form: segments.Form = "short"
    threshold: float = 0.2
    w_rel: float = 1.0
    w_sup: float = 1.0
    w_use: float = 0.5
    w_seq: float = 1.0
    candidates: steps.Candidates = OnePath(n=5)
    select: steps.PassageSelector = Top(k=5)
    beam: int = 2
    depth: int = 7
    segment_tokens: int = 64
    reader: steps.Reader = steps.Reader(prompts="self_rag_checkpoint", answer_tokens=100)
    closed_tokens: int = 50
    by: kinds.By = "text"
    fidelity: self_rag.Rule = "paper"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)
        check_choices(
            self, mode=Mode, retrieve=Retrieve, form=segments.Form, fidelity=self_rag.Rule
        )
        if not 0 <= self.threshold <= 1:
            raise InputError(f"threshold is {self.threshold}: a probability, 0 to 1.")
        if min(self.beam, self.most, self.segment_tokens) < 1:
            raise InputError(
                f"beam is {self.beam}, depth {self.depth} and segment_tokens "
                f"{self.segment_tokens}; each must be at least 1, and depth 2 as released."
            )
        if self.mode == "checkpoint" and (self.by != "text" or self.reader.truncate):
            raise InputError(
                "A Self-RAG checkpoint answers by what it writes, from whole passages: set "
                "by=text and reader.truncate=False, or mode=prompted."
            )

    @property
    def needs(self) -> Needs:
        """Log-probabilities, and the needs of candidates, passage selector and answering."""
        found = needs_of(candidates=self.candidates, select=self.select)
        return Needs(logprobs=True, scores=True) | found | tasks.answering_needs(self)

    @property
    def most(self) -> int:
        """Limit of segments."""
        if self.form == "short":
            return 1
        return self.depth - (self.fidelity == "released")

    @property
    def weights(self) -> self_rag.Weights:
        """Weights of the parts of a score."""
        if self.form == "long" and self.fidelity == "released":
            return self_rag.Weights(self.w_rel, self.w_sup, 0.0, 0.0)
        return self_rag.Weights(self.w_rel, self.w_sup, self.w_use, self.w_seq)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Grows beams of segments, and reads the answer of the best."""
        task = kinds.task_of(question)
        if self.mode == "checkpoint":
            reflection.check_vocabulary(tools.llm)
        mode = "prompted emulation" if self.mode == "prompted" else self.mode
        trace: steps.Trace = {"mode": mode, "task": task, "steps": []}
        beams = [Beam()]
        while len(trace["steps"]) < self.most and not all(beam.over for beam in beams):
            beams = await _extend(question, beams, tools, self, trace)
        _record_gate(trace, self)
        best = _best_option(question, beams, self, trace) if self.form == "short" else beams[0]
        chosen = [{"id": one.id, "text": one.reply.text} for one in best.segments]
        trace["chosen"] = {"score": best.score, "segments": chosen}
        if trace["gate"]["retrieve"]:
            ids = dict.fromkeys(one.id for one in best.segments if one.id is not None)
            trace["selected"] = {"ids": list(ids)}
        return Answer(question.id, _conclude(question, best, self, trace), trace)


class ScoredSegment(NamedTuple):
    """A part of an answer, from the passage at a row or from none.

    Attributes:
      row, id: of the passage.
      reply: the text as a reader sees it, and its generation.
      scores: see `jaxrag.functional.self_rag.segment_scores`.
      text: as the next prompt shows it.
    """

    row: int | None
    id: str | None
    reply: steps.Reply
    scores: dict[str, float]
    text: str


class Beam(NamedTuple):
    """A partial answer; ``rows`` are those of its last search."""

    segments: tuple[ScoredSegment, ...] = ()
    score: float = 0.0
    over: bool = False
    rows: tuple[int, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """Its segments as the next prompt shows them."""
        return tuple(segment.text for segment in self.segments)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Its segments as a reader sees them."""
        return tuple(reflection.whole(s.reply.text, s.reply.generation) for s in self.segments)


async def _extend(
    question: Question, beams: list[Beam], tools: Tools, config: Config, trace: steps.Trace
) -> list[Beam]:
    """Each beam with each of its possible next segments, the best ones first."""
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
    question: Question, beam: Beam, number: int, tools: Tools, config: Config
) -> tuple[list[Beam], steps.Trace, list[dict[str, Any]]]:
    """A beam's continuations, their record, and the searches made for them."""
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
    children = [_append(beam, segment, config) for segment in found if segment is not None]
    record["so_far"] = " ".join(beam.sentences)
    record["candidates"] = [
        {"id": last.id, "text": last.reply.text, **last.scores, "path": child.score}
        for child in children
        for last in child.segments[-1:]
    ]
    ended = len(children) < len(rows)  # the model had no more to write
    if ended and (beam.segments or not children):
        children.append(beam._replace(over=True))
    return children, record, searches


async def _decide(question: Question, beam: Beam, tools: Tools, config: Config) -> steps.Trace:
    """Whether the next segment needs passages: "retrieve", "no", or "continue" with the last."""
    if config.retrieve != "adaptive":
        decision = "retrieve" if config.retrieve == "always" else "no"
        return {"decision": decision, "probability": None}
    again = False
    if config.mode == "checkpoint":
        prompt, _ = segments.instruction(question, beam.parts, config)
        found = await reflection.logprobs(prompt, reflection.RETRIEVAL, tools.llm)
        has_passage = bool(beam.segments) and beam.segments[-1].row is not None
        again = has_passage and reflection.RETRIEVAL[int(np.argmax(found))] == reflection.AGAIN
    else:
        fields = segments.prompt_fields(question, beam.parts)
        name = config.reader.prompts
        found = await reflection.by_words(name, "retrieval_needed", 2, tools.llm, **fields)
    rule = config.fidelity if config.form == "short" else "paper"
    probability = float(_retrieval_probability(found[:2], rule=rule))
    decision = "retrieve" if probability > config.threshold else "no"
    return {"decision": "continue" if again else decision, "probability": probability}


async def _search(
    question: Question, beam: Beam, number: int, tools: Tools, config: Config
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


async def _segment(
    question: Question, beam: Beam, row: int | None, tools: Tools, config: Config
) -> ScoredSegment | None:
    """The next segment, from the passage at a row or from none; None if there is no more."""
    write = segments.by_tokens if config.mode == "checkpoint" else segments.by_prompts
    reply, critique, part = await write(question, beam.parts, row, tools, config)
    if critique is None or (config.form == "long" and not reply.text):
        return None
    count = len(reply.generation.logprobs)
    width = max(16, 1 << max(count - 1, 0).bit_length())  # a power of two: few programs
    logprobs = np.zeros(width, np.float32)
    logprobs[:count] = reply.generation.logprobs
    found = _segment_scores(
        critique, logprobs, where=np.arange(width) < count, weights=config.weights
    )
    scores = {name: float(value) for name, value in found._asdict().items()}
    name = None if row is None else tools.retriever.passages([row])[0].id
    return ScoredSegment(row, name, reply, scores, part)


def _append(beam: Beam, segment: ScoredSegment, config: Config) -> Beam:
    """The beam with one more segment."""
    grown = (*beam.segments, segment)
    scores = np.zeros(config.most, np.float32)
    scores[: len(grown)] = [one.scores["total"] for one in grown]
    where = np.arange(config.most) < len(grown)
    score = float(_path_score(scores, where=where, rule=config.fidelity))
    if config.form == "short":
        over = True
    elif config.mode == "checkpoint":
        over = segment.reply.generation.finish_reason == "end"
    else:
        over = loops.is_last(segment.reply, config.reader)
    return beam._replace(segments=grown, score=score, over=over)


def _record_gate(trace: steps.Trace, config: Config) -> None:
    """Writes the first probability of retrieval and whether any segment had a passage."""
    records = [record for step in trace["steps"] for record in step["beams"]]
    trace["gate"] = {
        "name": "self_rag",
        "retrieve": any(record["decision"] != "no" for record in records),
        "probability": records[0]["probability"],
        "threshold": config.threshold,
    }


def _best_option(question: Question, beams: list[Beam], config: Config, trace: steps.Trace) -> Beam:
    """The short answer of the best passage; for a closed question, of the best option."""
    role = kinds.prompt_role(question, directly=config.mode == "checkpoint")
    if len(beams) == 1 or question_kinds.role_of(question) == "context":
        return beams[0]
    template = prompts.load(config.reader.prompts).role(role)
    said = [beam.segments[0].reply.text for beam in beams]
    if question_kinds.role_of(question) != "multiple_choice":
        said = [kinds.verdict(text, question, template) for text in said]
    options = list(dict.fromkeys(said))
    numbers = np.array([options.index(text) for text in said], np.int32)
    scores = np.array([beam.score for beam in beams], np.float32)
    totals = np.asarray(_option_scores(scores, numbers, count=len(options)))
    trace["options"] = dict(zip(options, map(float, totals), strict=True))
    return beams[said.index(options[int(np.argmax(totals))])]


def _conclude(question: Question, best: Beam, config: Config, trace: steps.Trace) -> str:
    """Reads the answer, and writes it into the trace."""
    if config.form == "short":
        reply = best.segments[0].reply
    else:
        text = " ".join(best.sentences)
        whole = loops.joined(text, [segment.reply.generation for segment in best.segments])
        stated = stated_answer(text) if config.mode == "prompted" else None
        template = prompts.load(config.reader.prompts).role("continue_direct")
        read = kinds.read(stated or text, question, template)
        reply = steps.Reply(read, text, steps.mean_nll(whole, config.reader), whole)
    trace["answer"] = reply.record()
    kinds.note_option(reply.text, question, trace)
    return reply.text
