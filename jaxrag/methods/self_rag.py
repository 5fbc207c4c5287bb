"""Self-RAG (Asai et al. 2024): a model that asks for passages and judges what it makes of them.

Where retrieval is asked for, the answer's next segment is written from each passage found, apart,
and each such segment is scored: is the passage relevant, does it support what was written, is that
useful, how probable was it (`jaxrag.functional.self_rag`). A short answer is one segment, the best;
of a closed question, the option whose passages' scores have the greatest sum. A long one is grown
segment by segment, by a search with beams.

Two modes, and only the first is Self-RAG. "checkpoint" needs a model trained for it, such as
selfrag/selfrag_llama2_7b, which judges by reflection tokens of its vocabulary; their probabilities
are read. "prompted" is an EMULATION for any other model: it is asked for the same judgements by
prompts, and the probabilities of its words for them, normalised, are scored the same way.

What differs from the released code, in both fidelities. There judgements are read off where the
model happens to write one, and count 0 where it does not; here every segment gets all of them, each
after the likeliest one before it. There a segment of a long answer goes to the next [Retrieval],
here it is a sentence, as in the paper. There a long answer begins without retrieval, and without a
look at the threshold, where the model does not write [Retrieval] of itself. "released" has what
`Config.fidelity` says.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from jaxrag.engines.requests import gather
from jaxrag.functional import self_rag
from jaxrag.functional.conclusions import conclusion
from jaxrag.methods import kinds, prompts, reflection, segments, steps
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.selectors import Top
from jaxrag.methods.tools import Tools
from jaxrag.types import Answer, Generation, InputError, Question

Mode = Literal["checkpoint", "prompted"]
Retrieve = Literal["adaptive", "always", "never"]

_AGAIN = 2  # the place of [Continue to Use Evidence] in reflection.RETRIEVAL

_segment_scores = jax.jit(self_rag.segment_scores)
_path_score = jax.jit(self_rag.path_score, static_argnames="rule")
_retrieval_probability = jax.jit(self_rag.retrieval_probability, static_argnames="rule")
_option_scores = jax.jit(self_rag.option_scores, static_argnames="count")


@dataclasses.dataclass(frozen=True)
class Config:
    """Self-RAG's inference; mode "prompted" is an emulation by prompts, not Self-RAG.

    Attributes:
      mode: "checkpoint" reads the reflection tokens of a model trained as Self-RAG; "prompted"
        asks any model for the same judgements, and its trace says "prompted emulation".
      retrieve: "adaptive" where the probability that retrieval is needed exceeds ``threshold``.
      form: "short", one segment; "long", up to ``depth`` of them.
      threshold: 0.2 as released for most tasks.
      w_rel, w_sup, w_use, w_seq: what relevance, support, utility and the segment's own
        probability count; the released commands have ``w_use=1``, and ``w_seq=0`` where they leave
        out the option for sequence scores.
      candidates, select: the passages that segments are written from, each alone.
      beam: answers kept after each segment of a long one.
      depth: most segments; it always ends there.
      segment_tokens: most new tokens of a segment of a long answer.
      reader: prompts and decoding; ``answer_tokens`` is for short answers to open questions.
      closed_tokens: most new tokens of a short answer to a closed question.
      by: what answers a closed question from each passage, see `kinds.By`; in mode "checkpoint"
        always what the model writes.
      fidelity: "released" does as the code where it departs from the paper: short answers compare
        the threshold with a ratio of logarithms; long ones search once, by the question, where the
        paper searches for each segment by question and last segment, multiply the segments' scores
        (the paper does not say; here: their mean), leave utility and sequence out, and end a
        segment before ``depth``.
    """

    mode: Mode = "checkpoint"
    retrieve: Retrieve = "adaptive"
    form: segments.Form = "short"
    threshold: float = 0.2
    w_rel: float = 1.0
    w_sup: float = 1.0
    w_use: float = 0.5
    w_seq: float = 1.0
    candidates: steps.Candidates = OnePath(n=5)
    select: steps.Selector = Top(k=5)
    beam: int = 2
    depth: int = 7
    segment_tokens: int = 64
    reader: steps.Reader = steps.Reader(prompts="self_rag_checkpoint", answer_tokens=100)
    closed_tokens: int = 50
    by: kinds.By = "text"
    fidelity: self_rag.Rule = "paper"

    def __post_init__(self) -> None:
        kinds.check_closed(self.closed_tokens, self.by)
        allowed = {
            "mode": Mode,
            "retrieve": Retrieve,
            "form": segments.Form,
            "fidelity": self_rag.Rule,
        }
        for name, values in allowed.items():
            if getattr(self, name) not in get_args(values):
                given, known = getattr(self, name), ", ".join(get_args(values))
                raise InputError(f"{name} is {given!r}; allowed: {known}.")
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
    def needs_logprobs(self) -> bool:
        """All is decided by probabilities."""
        return True

    @property
    def most(self) -> int:
        """Most segments."""
        if self.form == "short":
            return 1
        return self.depth - (self.fidelity == "released")

    @property
    def weights(self) -> self_rag.Weights:
        """What the parts of a score count."""
        if self.form == "long" and self.fidelity == "released":
            return self_rag.Weights(self.w_rel, self.w_sup, 0.0, 0.0)
        return self_rag.Weights(self.w_rel, self.w_sup, self.w_use, self.w_seq)


class _Segment(NamedTuple):
    """A part of an answer, from the passage at a row or from none; ``text`` is told to go on."""

    row: int | None
    id: str | None
    reply: steps.Reply
    scores: dict[str, float]
    text: str


class _Beam(NamedTuple):
    """An answer on its way, and the rows that its last search found."""

    segments: tuple[_Segment, ...] = ()
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


async def answer(question: Question, tools: Tools, config: Config) -> Answer:
    """Grows beams of segments, and reads the answer of the best."""
    role = kinds.role_of(question)
    if role == "multiple_choice" and question.answers:
        kinds.gold_option(question)  # an answer that is no choice could never be met
    if config.mode == "checkpoint":
        reflection.check_vocabulary(tools.llm)
    mode = "prompted emulation" if config.mode == "prompted" else config.mode
    trace: steps.Trace = {"mode": mode, "task": "open" if role == "context" else role, "steps": []}
    beams = [_Beam()]
    while len(trace["steps"]) < config.most and not all(beam.over for beam in beams):
        beams = await _step(question, beams, tools, config, trace)
    _record_gate(trace, config)
    best = _chosen(question, beams, config, trace) if config.form == "short" else beams[0]
    chosen = [{"id": one.id, "text": one.reply.text} for one in best.segments]
    trace["chosen"] = {"score": best.score, "segments": chosen}
    if trace["gate"]["retrieve"]:
        ids = dict.fromkeys(one.id for one in best.segments if one.id is not None)
        trace["selected"] = {"ids": list(ids)}
    return Answer(question.id, _conclude(question, best, config, trace), trace)


async def _step(
    question: Question, beams: list[_Beam], tools: Tools, config: Config, trace: steps.Trace
) -> list[_Beam]:
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
    question: Question, beam: _Beam, number: int, tools: Tools, config: Config
) -> tuple[list[_Beam], steps.Trace, list[dict[str, Any]]]:
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


async def _decide(question: Question, beam: _Beam, tools: Tools, config: Config) -> steps.Trace:
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
    question: Question, beam: _Beam, number: int, tools: Tools, config: Config
) -> tuple[_Beam, list[dict[str, Any]]]:
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


def _with(beam: _Beam, segment: _Segment, config: Config) -> _Beam:
    """The beam with one more segment."""
    segments = (*beam.segments, segment)
    scores = np.zeros(config.most, np.float32)
    scores[: len(segments)] = [one.scores["total"] for one in segments]
    where = np.arange(config.most) < len(segments)
    score = float(_path_score(scores, where=where, rule=config.fidelity))
    return beam._replace(segments=segments, score=score, over=_over(segment.reply, config))


def _over(reply: steps.Reply, config: Config) -> bool:
    """Whether the answer ends with this segment; a chat's model ends every one."""
    ended = reply.generation.finish_reason == "end"
    if config.form == "short":
        return True
    if ended and not prompts.load(config.reader.prompts).role("continue_direct").chat:
        return True
    stated = config.mode == "prompted" and conclusion(reply.text) is not None
    return stated and (ended or reply.raw.rstrip().endswith((".", "!", "?")))


async def _segment(
    question: Question, beam: _Beam, row: int | None, tools: Tools, config: Config
) -> _Segment | None:
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
    name = None if row is None else tools.index.passages([row])[0].id
    return _Segment(row, name, reply, scores, part)


def _record_gate(trace: steps.Trace, config: Config) -> None:
    """What was decided at the beginning, and whether any segment had a passage."""
    records = [record for step in trace["steps"] for record in step["beams"]]
    trace["gate"] = {
        "name": "self_rag",
        "retrieve": any(record["decision"] != "no" for record in records),
        "probability": records[0]["probability"],
        "threshold": config.threshold,
    }


def _chosen(question: Question, beams: list[_Beam], config: Config, trace: steps.Trace) -> _Beam:
    """The short answer of the best passage; to a closed question, of the best option."""
    role = kinds.asked_role(question, directly=config.mode == "checkpoint")
    if len(beams) == 1 or kinds.role_of(question) == "context":
        return beams[0]
    template = prompts.load(config.reader.prompts).role(role)
    said = [beam.segments[0].reply.text for beam in beams]
    if kinds.role_of(question) != "multiple_choice":
        said = [kinds.verdict(text, question, template) for text in said]
    options = list(dict.fromkeys(said))
    numbers = np.array([options.index(text) for text in said], np.int32)
    scores = np.array([beam.score for beam in beams], np.float32)
    totals = np.asarray(_option_scores(scores, numbers, count=len(options)))
    trace["options"] = dict(zip(options, map(float, totals), strict=True))
    return beams[said.index(options[int(np.argmax(totals))])]


def _conclude(question: Question, best: _Beam, config: Config, trace: steps.Trace) -> str:
    """Reads the answer, and writes it into the trace."""
    if config.form == "short":
        reply = best.segments[0].reply
    else:
        text, parts = " ".join(best.sentences), [s.reply.generation for s in best.segments]
        whole = Generation(
            text,
            tuple(token for part in parts for token in part.tokens),
            tuple(logprob for part in parts for logprob in part.logprobs),
            parts[-1].finish_reason if parts else "end",
            sum(part.prompt_tokens for part in parts),
        )
        stated = conclusion(text) if config.mode == "prompted" else None
        template = prompts.load(config.reader.prompts).role("continue_direct")
        read = kinds.read(stated or text, question, template)
        reply = steps.Reply(read, text, steps.mean_nll(whole, config.reader.fidelity), whole)
    trace["answer"] = reply.record()
    kinds.note_option(reply.text, question, trace)
    return reply.text
