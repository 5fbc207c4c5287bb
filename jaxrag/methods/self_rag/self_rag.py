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

Source and differences from the released code: docs/methods, "Self-RAG".
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxrag.core.checks import check_choices, check_range
from jaxrag.data import question_kinds
from jaxrag.engines.scheduler import gather
from jaxrag.functional import self_rag
from jaxrag.functional.on_host import on_host
from jaxrag.methods.self_rag import reflection, segments
from jaxrag.steps import kinds, loops
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Candidates, Episode, PassageSelector, Pool
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader, Reply, mean_nll, program_size
from jaxrag.steps.tools import Needs
from jaxrag.text.sentences import stated_answer
from jaxrag.types import InputError

Mode = Literal["checkpoint", "prompted"]
Retrieve = Literal["adaptive", "always", "never"]

_segment_scores = on_host(self_rag.segment_scores)
_path_score = on_host(self_rag.path_score, static=("rule",))
_retrieval_probability = on_host(self_rag.retrieval_probability, static=("rule",))
_option_scores = on_host(self_rag.option_scores, static=("count",))


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
      reader: prompts and decoding of short answers; in mode "checkpoint" ``by`` is "text".
      fidelity: "released" follows the code where it differs from the paper: short answers compare a
        ratio of logarithms with the threshold; long ones search once, multiply the segments'
        scores, ignore utility and sequence scores, and end one segment before ``depth``.
    """

    name = "self_rag"
    needs = Needs(logprobs=True, scores=True)

    mode: Mode = "checkpoint"
    retrieve: Retrieve = "adaptive"
    form: segments.Form = "short"
    threshold: float = 0.2
    w_rel: float = 1.0
    w_sup: float = 1.0
    w_use: float = 0.5
    w_seq: float = 1.0
    candidates: Candidates = OnePath(n=5)
    select: PassageSelector = Top(k=5)
    beam: int = 2
    depth: int = 7
    segment_tokens: int = 64
    reader: Reader = Reader(prompts="self_rag_checkpoint", answer_tokens=100, closed_tokens=50)
    fidelity: self_rag.Rule = "paper"

    def __post_init__(self) -> None:
        check_choices(
            self, mode=Mode, retrieve=Retrieve, form=segments.Form, fidelity=self_rag.Rule
        )
        check_range(1.0, threshold=self.threshold)
        if min(self.beam, self.most, self.segment_tokens) < 1:
            raise InputError(
                f"beam is {self.beam}, depth {self.depth} and segment_tokens "
                f"{self.segment_tokens}; each must be at least 1, and depth 2 as released."
            )
        if self.mode == "checkpoint" and (self.reader.by != "text" or self.reader.truncate):
            raise InputError(
                "A Self-RAG checkpoint answers by what it writes, from whole passages: set "
                "reader.by=text and reader.truncate=False, or mode=prompted."
            )

    @property
    def most(self) -> int:
        """Limit of segments."""
        if self.form == "short":
            return 1
        return self.depth - (self.fidelity == "released")

    @property
    def sentence_tokens(self) -> int | None:
        """Limit of new tokens of a sentence of a long answer; None for a short answer."""
        return self.segment_tokens if self.form == "long" else None

    @property
    def weights(self) -> self_rag.Weights:
        """Weights of the parts of a score."""
        if self.form == "long" and self.fidelity == "released":
            return self_rag.Weights(self.w_rel, self.w_sup, 0.0, 0.0)
        return self_rag.Weights(self.w_rel, self.w_sup, self.w_use, self.w_seq)

    async def answer(self, episode: Episode) -> Reply:
        """Grows beams of segments, and reads the answer of the best."""
        if self.mode == "checkpoint":
            reflection.check_vocabulary(episode)
        steps: list[dict[str, Any]] = []
        beams = [Beam()]
        while len(steps) < self.most and not all(beam.over for beam in beams):
            beams, records = await _extend(episode, beams, len(steps) + 1, self)
            steps.append({"segment": len(steps) + 1, "beams": records})
        mode = "prompted emulation" if self.mode == "prompted" else self.mode
        episode.note(mode=mode, steps=steps)
        records = [record for step in steps for record in step["beams"]]
        retrieved = episode.decided(
            "self_rag",
            any(record["decision"] != "no" for record in records),
            probability=records[0]["probability"],
            threshold=self.threshold,
        )
        best = _best_option(episode, beams, self) if self.form == "short" else beams[0]
        segments = [{"id": s.id, "text": s.reply.text} for s in best.segments]
        episode.note(chosen={"score": best.score, "segments": segments})
        return _conclude(episode, best, self, retrieved=retrieved)


class ScoredSegment(NamedTuple):
    """A part of an answer, from a passage or from none.

    Attributes:
      passage, id: the passage.
      reply: the text as a reader sees it, and its generation.
      scores: see `jaxrag.functional.self_rag.segment_scores`.
      text: as the next prompt shows it.
    """

    passage: Pool | None
    id: str | None
    reply: Reply
    scores: dict[str, float]
    text: str


class Beam(NamedTuple):
    """A partial answer; ``pool`` holds the passages of its last search."""

    segments: tuple[ScoredSegment, ...] = ()
    score: float = 0.0
    over: bool = False
    pool: Pool = Pool()

    @property
    def parts(self) -> tuple[str, ...]:
        """Its segments as the next prompt shows them."""
        return tuple(segment.text for segment in self.segments)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Its segments as a reader sees them."""
        return tuple(reflection.whole(s.reply.text, s.reply.generation) for s in self.segments)


async def _extend(
    episode: Episode, beams: list[Beam], number: int, config: Config
) -> tuple[list[Beam], list[dict[str, Any]]]:
    """Each beam with each of its possible next segments, the best ones first; their records.

    All beams decide before any searches, so that the order of searches does not depend on a server.
    """
    live = [beam for beam in beams if not beam.over]
    records = await gather(*(_decide(episode, beam, config) for beam in live))
    grown = await gather(
        *(
            _grow(episode, beam, number, config, record)
            for beam, record in zip(live, records, strict=True)
        )
    )
    pool = [beam for beam in beams if beam.over]
    pool += itertools.chain.from_iterable(grown)
    pool.sort(key=lambda beam: -beam.score)  # equal scores: in the order of the search
    return (pool[: config.beam] if config.form == "long" else pool), records


async def _grow(
    episode: Episode, beam: Beam, number: int, config: Config, record: dict[str, Any]
) -> list[Beam]:
    """A beam's continuations, added to the record of its decision."""
    passages: list[Pool | None] = []
    if record["decision"] == "continue":
        passages = [beam.segments[-1].passage]
    elif record["decision"] == "retrieve":
        beam = await _search(episode, beam, number, config)
        passages = [beam.pool.at([i]) for i in range(len(beam.pool))]
    passages = passages or [None]
    segments_ = await gather(*(_segment(episode, beam, passage, config) for passage in passages))
    children = [_append(beam, segment, config) for segment in segments_ if segment is not None]
    record["so_far"] = " ".join(beam.sentences)
    record["candidates"] = [
        {"id": last.id, "text": last.reply.text, **last.scores, "path": child.score}
        for child in children
        for last in child.segments[-1:]
    ]
    ended = len(children) < len(passages)  # the model had no more to write
    if ended and (beam.segments or not children):
        children.append(beam._replace(over=True))
    return children


async def _decide(episode: Episode, beam: Beam, config: Config) -> dict[str, Any]:
    """Whether the next segment needs passages: "retrieve", "no", or "continue" with the last."""
    if config.retrieve != "adaptive":
        decision = "retrieve" if config.retrieve == "always" else "no"
        return {"decision": decision, "probability": None}
    again = False
    if config.mode == "checkpoint":
        prompt, _ = segments.instruction(episode, beam.parts, short=config.form == "short")
        logprobs = await reflection.logprobs(prompt, reflection.RETRIEVAL, episode)
        has_passage = bool(beam.segments) and beam.segments[-1].passage is not None
        again = has_passage and reflection.RETRIEVAL[int(np.argmax(logprobs))] == reflection.AGAIN
    else:
        fields = segments.prompt_fields(episode, beam.parts)
        logprobs = await reflection.by_words(episode, "retrieval_needed", 2, **fields)
    rule = config.fidelity if config.form == "short" else "paper"
    probability = float(_retrieval_probability(logprobs[:2], rule=rule))
    decision = "retrieve" if probability > config.threshold else "no"
    return {"decision": "continue" if again else decision, "probability": probability}


async def _search(episode: Episode, beam: Beam, number: int, config: Config) -> Beam:
    """The beam with the passages found for its next segment."""
    once = config.fidelity == "released"
    if beam.pool and once:
        return beam
    last = () if once else beam.sentences[-1:]
    path = "" if config.form == "short" else f"segment {number}"
    part = episode.about(" ".join([episode.question.text, *last]), path=path)
    pool = await loops.retrieve(part, config.candidates, config.select)
    return beam._replace(pool=pool)


async def _segment(
    episode: Episode, beam: Beam, passage: Pool | None, config: Config
) -> ScoredSegment | None:
    """The next segment, from a passage or from none; None if there is no more."""
    write = segments.by_tokens if config.mode == "checkpoint" else segments.by_prompts
    reply, critique, part = await write(episode, beam.parts, passage, config.sentence_tokens)
    if critique is None or (config.form == "long" and not reply.text):
        return None
    count = len(reply.generation.logprobs)
    logprobs = np.zeros(program_size(count), np.float32)
    logprobs[:count] = reply.generation.logprobs
    where = np.arange(len(logprobs)) < count
    parts = _segment_scores(critique, logprobs, where=where, weights=config.weights)
    scores = {name: float(value) for name, value in parts._asdict().items()}
    name = None if passage is None else episode.ids(passage)[0]
    return ScoredSegment(passage, name, reply, scores, part)


def _append(beam: Beam, segment: ScoredSegment, config: Config) -> Beam:
    """The beam with one more segment."""
    grown = (*beam.segments, segment)
    scores = np.zeros(config.most, np.float32)
    scores[: len(grown)] = [part.scores["total"] for part in grown]
    where = np.arange(config.most) < len(grown)
    score = float(_path_score(scores, where=where, rule=config.fidelity))
    if config.form == "short":
        over = True
    elif config.mode == "checkpoint":
        over = segment.reply.generation.finish_reason == "end"
    else:
        over = loops.is_last(segment.reply, config.reader)
    return beam._replace(segments=grown, score=score, over=over)


def _best_option(episode: Episode, beams: list[Beam], config: Config) -> Beam:
    """The short answer of the best passage; for a closed question, of the best option."""
    question = episode.question
    if len(beams) == 1 or question_kinds.role_of(question) == "context":
        return beams[0]
    answers = [beam.segments[0].reply.text for beam in beams]
    if question_kinds.role_of(question) != "multiple_choice":
        role = kinds.prompt_role(question, directly=config.mode == "checkpoint")
        template = episode.template(role)
        answers = [kinds.verdict(text, question, template) for text in answers]
    options = list(dict.fromkeys(answers))
    numbers = np.array([options.index(text) for text in answers], np.int32)
    scores = np.array([beam.score for beam in beams], np.float32)
    totals = _option_scores(scores, numbers, count=len(options))
    episode.note(options=dict(zip(options, map(float, totals), strict=True)))
    return beams[answers.index(options[int(np.argmax(totals))])]


def _conclude(episode: Episode, best: Beam, config: Config, *, retrieved: bool) -> Reply:
    """Reads the answer from the best beam."""
    read: Pool | None = None
    if retrieved:
        pools = (s.passage for s in best.segments if s.passage is not None)
        read = functools.reduce(Pool.union, pools, Pool())
    if config.form == "short":
        return episode.conclude(best.segments[0].reply, read=read)
    text = " ".join(best.sentences)
    generation = loops.joined(text, [segment.reply.generation for segment in best.segments])
    stated = stated_answer(text) if config.mode == "prompted" else None
    template = episode.template("continue_direct")
    answer = kinds.read(stated or text, episode.question, template)
    u = mean_nll(generation, episode.reader)
    return episode.conclude(Reply(answer, text, u, generation), read=read)
