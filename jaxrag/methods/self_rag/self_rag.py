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

Source: docs/methods.md, "Self-RAG".
"""

from __future__ import annotations

import dataclasses
from typing import get_args

import jax
import numpy as np

from jaxrag.data import question_kinds
from jaxrag.functional import self_rag
from jaxrag.methods.self_rag import reflection, segments
from jaxrag.methods.self_rag.beams import Beam, Mode, Retrieve, step
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, prompts, tasks
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.tools import Tools
from jaxrag.text.stated_answer import stated_answer
from jaxrag.types import Answer, Generation, InputError, Question

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
    def needs(self) -> Needs:
        """All is decided by probabilities."""
        found = needs_of(candidates=self.candidates, select=self.select)
        return Needs(logprobs=True) | found | tasks.answering_needs(self)

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

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Grows beams of segments, and reads the answer of the best."""
        role = question_kinds.role_of(question)
        if role == "multiple_choice" and question.answers:
            question_kinds.gold_option(question)  # an answer that is no choice could never be met
        if self.mode == "checkpoint":
            reflection.check_vocabulary(tools.llm)
        mode = "prompted emulation" if self.mode == "prompted" else self.mode
        trace: steps.Trace = {
            "mode": mode,
            "task": "open" if role == "context" else role,
            "steps": [],
        }
        beams = [Beam()]
        while len(trace["steps"]) < self.most and not all(beam.over for beam in beams):
            beams = await step(question, beams, tools, self, trace)
        _record_gate(trace, self)
        best = _chosen(question, beams, self, trace) if self.form == "short" else beams[0]
        chosen = [{"id": one.id, "text": one.reply.text} for one in best.segments]
        trace["chosen"] = {"score": best.score, "segments": chosen}
        if trace["gate"]["retrieve"]:
            ids = dict.fromkeys(one.id for one in best.segments if one.id is not None)
            trace["selected"] = {"ids": list(ids)}
        return Answer(question.id, _conclude(question, best, self, trace), trace)


def _record_gate(trace: steps.Trace, config: Config) -> None:
    """What was decided at the beginning, and whether any segment had a passage."""
    records = [record for step in trace["steps"] for record in step["beams"]]
    trace["gate"] = {
        "name": "self_rag",
        "retrieve": any(record["decision"] != "no" for record in records),
        "probability": records[0]["probability"],
        "threshold": config.threshold,
    }


def _chosen(question: Question, beams: list[Beam], config: Config, trace: steps.Trace) -> Beam:
    """The short answer of the best passage; to a closed question, of the best option."""
    role = kinds.asked_role(question, directly=config.mode == "checkpoint")
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
        text, parts = " ".join(best.sentences), [s.reply.generation for s in best.segments]
        whole = Generation(
            text,
            tuple(token for part in parts for token in part.tokens),
            tuple(logprob for part in parts for logprob in part.logprobs),
            parts[-1].finish_reason if parts else "end",
            sum(part.prompt_tokens for part in parts),
        )
        stated = stated_answer(text) if config.mode == "prompted" else None
        template = prompts.load(config.reader.prompts).role("continue_direct")
        read = kinds.read(stated or text, question, template)
        reply = steps.Reply(read, text, steps.mean_nll(whole, config.reader.fidelity), whole)
    trace["answer"] = reply.record()
    kinds.note_option(reply.text, question, trace)
    return reply.text
