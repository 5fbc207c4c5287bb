"""SeaKR (Yao et al. 2024): retrieves where the model's own samples lie apart in its hidden states.

An answer is reasoned out step by step, a sentence each. For every step ``samples`` others are drawn
besides the greedy one, and its uncertainty is that of their states at the end token, in the middle
layer (`jaxrag.functional.seakr`). A step above ``threshold``, or an empty one, is replaced: its
sure words become the query, each passage found (beside those kept so far) is tried for the step
anew, and the passage of the least uncertain step is kept with it. Steps end where one states the
answer, nothing new is found, or a limit is reached. Then the answer is read twice, from the steps
alone and from the passages alone, and the less uncertain reading is taken.

What is our reading: "the hidden state" is the residual stream after the layer (the released code
takes what the layer's MLP adds to it, so that its threshold of -6 is of smaller states), samples
are drawn from all tokens at temperature 1 (there from the 50 most probable ones up to 0.9), and an
answer that states none is asked for by the words that lead to it, at the uncertainty of the text
before them. As there, words of the question and of the step before are sure whatever the model
thinks, and stopwords are left out (there by part of speech, here by our list).

Source: docs/methods.md, "SeaKR".
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrag.core.checks import check_limits
from jaxrag.data import question_kinds
from jaxrag.engines.scheduler import gather
from jaxrag.functional import seakr
from jaxrag.methods.inspecting.seakr_samples import Said, say
from jaxrag.steps import asking as steps
from jaxrag.steps import loops
from jaxrag.steps.candidates import search
from jaxrag.steps.inspection_tool import words_of, words_of_tokens
from jaxrag.steps.needs import Needs
from jaxrag.steps.tools import Tools
from jaxrag.text.sentences import sentences, word_key
from jaxrag.text.stated_answer import stated_answer
from jaxrag.types import Answer, InputError, Question

_CUE = " So the answer is"


@dataclasses.dataclass(frozen=True)
class Config:
    """As released for HotpotQA and Llama-2-7b-chat.

    Attributes:
      threshold: uncertainty above which a step is looked up.
      samples: answers drawn to measure it.
      layer: whose hidden states, from 0; -1 is the middle one.
      alpha: of `jaxrag.functional.seakr.uncertainty`.
      sure: the probability from which on a word is part of the query.
      k: passages of each search, every one tried.
      max_steps, max_passages: most sentences, and most passages kept.
      reader: prompts and decoding; its ``answer_tokens`` are not used.
      tokens: most new tokens of a step, and of an answer.
    """

    name = "seakr"

    threshold: float = -6.0
    samples: int = 20
    layer: int = -1
    alpha: float = 1e-3
    sure: float = 0.9
    k: int = 3
    max_steps: int = 7
    max_passages: int = 5
    reader: steps.Reader = steps.Reader(prompts="inspecting")
    tokens: int = 100

    def __post_init__(self) -> None:
        names = ("samples", "k", "max_steps", "max_passages", "tokens")
        check_limits(**{name: getattr(self, name) for name in names})
        if self.alpha <= 0 or not 0 <= self.sure <= 1 or self.layer < -1:
            raise InputError(
                f"alpha is {self.alpha}, sure {self.sure} and layer {self.layer}: alpha is above "
                "0, sure a probability, and layers count from 0, with -1 for the middle one."
            )

    @property
    def needs(self) -> Needs:
        """Hidden states are inside the model."""
        return Needs(search=True, inspection=True) | self.reader.needs

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Reasons step by step, then reads the answer from steps and from passages."""
        if question_kinds.role_of(question) == "multiple_choice" and question.answers:
            question_kinds.gold_option(question)  # an answer that is no choice could never be met
        trace: steps.Trace = {"steps": []}
        notes = _Notes()
        while len(notes.said) < self.max_steps and len(notes.rows) < self.max_passages:
            if not await _step(question, notes, tools, self, trace):
                break
            if stated_answer(notes.said[-1].reply.text) is not None:
                break
        chosen = await _read(question, notes, tools, self, trace)
        _record_gate(trace, self)
        if notes.rows:
            steps.record_selected(notes.rows, tools, trace)
        reply = loops.conclude(question, [chosen], self.reader, trace)
        return Answer(question.id, reply.text, trace)


@dataclasses.dataclass
class _Notes:
    """Where a question stands: its steps, the passages kept, the queries asked."""

    said: list[Said] = dataclasses.field(default_factory=list)
    rows: list[int] = dataclasses.field(default_factory=list)
    queries: set[str] = dataclasses.field(default_factory=set)

    @property
    def so_far(self) -> str:
        """The steps, a blank before each."""
        return "".join(f" {one.reply.text}" for one in self.said if one.reply.text)


async def _step(
    question: Question, notes: _Notes, tools: Tools, config: Config, trace: steps.Trace
) -> bool:
    """One more step, from new passages where it is uncertain; False where nothing new is found."""
    said = await say("continue", question, notes.so_far, notes.rows, tools, config)
    retrieve = not said.reply.text or said.uncertainty > config.threshold
    record: dict[str, Any] = {**said.record(), "retrieve": retrieve}
    trace["steps"].append(record)
    if retrieve:
        query = await _query(question, said, notes, tools, config)
        record["query"] = query
        best = await _retrieve(question, query, notes, tools, config, trace)
        if best is None:
            return False
        said = best
    notes.said.append(said)
    return True


async def _query(
    question: Question, said: Said, notes: _Notes, tools: Tools, config: Config
) -> str:
    """The step's words that the model is sure of, or that the question or the last step has.

    Those of the question where there are none.
    """
    plain = [word.bare for word in words_of(question.text) if word.content]
    if not said.reply.text:
        return " ".join(plain)
    raw = said.reply.raw
    seen = await tools.inspection.look(said.prompt, raw)
    words, t = words_of(seen.text, len(seen.text) - len(raw)), len(seen.logprobs)
    own = words_of_tokens(seen, words)[len(seen.spans) - t :]
    known = {word_key(word) for word in question.text.split()}
    if notes.said:
        known |= {word_key(word) for word in notes.said[-1].reply.text.split()}
    least = [seen.logprobs[own == number].min(initial=0.0) for number in range(len(words))]
    sure = [
        word.bare
        for word, logprob in zip(words, least, strict=True)
        if word.content and (math.exp(logprob) >= config.sure or word_key(word.text) in known)
    ]
    return " ".join(sure or plain)


async def _retrieve(
    question: Question,
    query: str,
    notes: _Notes,
    tools: Tools,
    config: Config,
    trace: steps.Trace,
) -> Said | None:
    """The least uncertain step of those that each new passage gives; None where none is new."""
    if query in notes.queries:
        return None
    notes.queries.add(query)
    number = len(trace["steps"])
    ranking = await search(f"step {number}", query, config.k, tools, trace)
    rows = [row for row in ranking.ids if row not in notes.rows]
    if not rows:
        return None
    tried = await gather(
        *(
            say("continue", question, notes.so_far, [*notes.rows, row], tools, config)
            for row in rows
        )
    )
    where = np.array([bool(one.reply.text) for one in tried])
    scores = np.array([one.uncertainty for one in tried], np.float32)
    best = int(seakr.least_uncertain(jnp.asarray(scores), where=jnp.asarray(where)))
    notes.rows.append(rows[best])
    ids = [passage.id for passage in tools.retriever.passages(rows)]
    shown = [{"id": i, **one.record()} for i, one in zip(ids, tried, strict=True)]
    trace["steps"][-1] |= {"tried": shown, "kept": ids[best]}
    return tried[best]


async def _read(
    question: Question, notes: _Notes, tools: Tools, config: Config, trace: steps.Trace
) -> steps.Reply:
    """The less uncertain of what the steps and what the passages say the answer is."""
    lines = (one for said in notes.said for one in sentences(said.reply.text))
    rationale = "\n".join(line for line in lines if stated_answer(line) is None)
    readings = await gather(
        _stated(question, rationale, tools, config), _stated(question, notes.rows, tools, config)
    )
    names = ("steps", "passages")
    valid = [_valid(one.reply.text) for one in readings]
    scores = [one.uncertainty for one in readings]
    # as released: of two that are as uncertain, that of the passages
    order = [1, 0] if valid[0] == valid[1] else [valid.index(True)]
    chosen = min(order, key=scores.__getitem__)
    trace["readings"] = {name: one.record() for name, one in zip(names, readings, strict=True)} | {
        "chosen": names[chosen]
    }
    return readings[chosen].reply


async def _stated(
    question: Question, evidence: Sequence[int] | str, tools: Tools, config: Config
) -> Said:
    """An answer from passages, or from a rationale that stands for them, that says what it is."""
    said = await say("complete", question, "", evidence, tools, config)
    if stated_answer(said.reply.text) is not None:
        return said
    so_far = f"{f' {said.reply.text}' if said.reply.text else ''}{_CUE}"
    forced = await say("complete", question, so_far, evidence, tools, config, measured=False)
    text = f"{so_far} {forced.reply.text}".strip()
    parts = (said.reply.generation, forced.reply.generation)
    made = dataclasses.replace(
        parts[1],
        text=text,
        tokens=tuple(itertools.chain(*(part.tokens for part in parts))),
        logprobs=tuple(itertools.chain(*(part.logprobs for part in parts))),
        prompt_tokens=sum(part.prompt_tokens for part in parts),
    )
    return said._replace(reply=said.reply._replace(text=text, raw=text, generation=made))


def _valid(text: str) -> bool:
    """Whether a text says what the answer is, and not that it is unknown."""
    stated = stated_answer(text)
    return stated is not None and "unknown" not in stated.lower()


def _record_gate(trace: steps.Trace, config: Config) -> None:
    """What was decided, over all steps."""
    found = [one["uncertainty"] for one in trace["steps"] if one["uncertainty"] is not None]
    asked = sum(one["retrieve"] for one in trace["steps"])
    trace["gate"] = {
        "name": "seakr",
        "retrieve": bool(asked),
        "highest": max(found, default=None),
        "threshold": config.threshold,
        "retrieved": asked,
        "of": len(trace["steps"]),
    }
