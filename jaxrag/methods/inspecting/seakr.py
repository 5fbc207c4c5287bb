"""SeaKR (Yao et al. 2024): retrieves if sampled answers differ in the model's hidden states.

1. Write the next reasoning step, a sentence, greedily; draw ``samples`` others. The step's
   uncertainty is that of their hidden states at the end token, in the middle layer
   (`jaxrag.functional.seakr`).
2. If it exceeds ``threshold``, or the step is empty, search by the step's confident words. Write
   the step again from each new passage (beside those kept so far); keep the passage and the step of
   the least uncertainty.
3. Stop if the step states the answer, no new passage is found, or a limit is reached.
4. Read the answer twice, from the steps alone and from the passages alone; take the less uncertain
   reading.

Our readings of the paper. "The hidden state" is the output of the layer's MLP, as in the released
code, to whose states its threshold of -6 belongs; ``state="residual"`` is the residual stream after
the layer, whose entries are larger. Samples
are drawn from all tokens at temperature 1 (released: from the 50 most probable ones up to 0.9). An
answer that states none is asked for with the words that lead to it, at the uncertainty of the text
before them. As released, words of the question and of the previous step are always confident, and
stopwords are left out (released: by part of speech; here: by a list of ours).

Source: docs/methods.md, "SeaKR".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.core.checks import check_choices, check_limits
from jaxrag.engines.scheduler import gather
from jaxrag.functional import seakr
from jaxrag.models.decoder.inspection import StatePart
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, loops, prompts
from jaxrag.steps.candidates import search
from jaxrag.steps.inspection_tool import words_of, words_of_tokens
from jaxrag.steps.tools import Needs, Tools
from jaxrag.text.sentences import sentences, word_key
from jaxrag.text.stated_answer import stated_answer
from jaxrag.types import Answer, InputError, Prompt, Question

_CUE = " So the answer is"

_uncertainty = jax.jit(seakr.uncertainty)


@dataclasses.dataclass(frozen=True)
class Config:
    """As released for HotpotQA and Llama-2-7b-chat.

    Attributes:
      threshold: uncertainty above which a step retrieves.
      samples: texts drawn to measure it.
      layer: layer of the hidden states, from 0; -1 is the middle one.
      state: of the layer: "mlp" is its MLP's output, "residual" the residual stream after it. A
        threshold belongs to one of them.
      alpha: of `jaxrag.functional.seakr.uncertainty`.
      sure: least probability of a confident word.
      k: passages of each search; each is tried.
      max_steps, max_passages: most sentences, and most passages kept.
      reader: prompts and decoding; its ``answer_tokens`` are not used.
      tokens: most new tokens of a step, and of an answer.
    """

    name = "seakr"

    threshold: float = -6.0
    samples: int = 20
    layer: int = -1
    state: StatePart = "mlp"
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
        check_choices(self, state=StatePart)
        if self.alpha <= 0 or not 0 <= self.sure <= 1 or self.layer < -1:
            raise InputError(
                f"alpha is {self.alpha}, sure {self.sure} and layer {self.layer}: alpha is above "
                "0, sure a probability, and layers count from 0, with -1 for the middle one."
            )

    @property
    def needs(self) -> Needs:
        """An index and hidden states."""
        return Needs(search=True, inspection=True) | self.reader.needs

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Reasons step by step, then reads the answer from the steps and from the passages."""
        kinds.task_of(question)  # refuses a question whose gold answer is not among its choices
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
    """The state of a question: its steps, the passages kept, the queries used."""

    said: list[Sampled] = dataclasses.field(default_factory=list)
    rows: list[int] = dataclasses.field(default_factory=list)
    queries: set[str] = dataclasses.field(default_factory=set)

    @property
    def so_far(self) -> str:
        """The steps, a blank before each."""
        return loops.so_far([one.reply for one in self.said])


class Sampled(NamedTuple):
    """The greedy text for a prompt, and its uncertainty by samples."""

    reply: steps.Reply
    prompt: Prompt
    uncertainty: float

    def record(self) -> dict[str, Any]:
        """Text and uncertainty as plain JSON."""
        finite = math.isfinite(self.uncertainty)
        return {"text": self.reply.text, "uncertainty": self.uncertainty if finite else None}


async def _step(
    question: Question, notes: _Notes, tools: Tools, config: Config, trace: steps.Trace
) -> bool:
    """Adds a step, from new passages if it is uncertain; False if no new passage is found."""
    said = await _say("continue", question, notes.so_far, notes.rows, tools, config)
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


async def _say(
    role: str,
    question: Question,
    so_far: str,
    evidence: Sequence[int] | str,
    tools: Tools,
    config: Config,
    *,
    measured: bool = True,
) -> Sampled:
    """The greedy text of a role's prompt and, where ``measured``, its uncertainty.

    ``evidence`` are rows of passages, or a rationale in their place.
    """
    role = role if evidence else f"{role}_direct"
    reader = dataclasses.replace(config.reader, answer_tokens=config.tokens)
    fields = {"question": loops.with_choices(question), "so_far": so_far}
    if evidence:
        shown = evidence if isinstance(evidence, str) else tools.retriever.passages(evidence)
        fields["passages"] = steps.show_passages(
            question, shown, tools.llm, reader, {}, role=role, **fields
        )
    template = prompts.load(reader.prompts).role(role)
    prompt = template.prompt(**fields)
    draws = [
        tools.llm.generate(
            prompt, max_new_tokens=config.tokens, temperature=1.0, stop=template.stop, seed=seed
        )
        for seed in range(1, config.samples + 1)
    ]
    reply, *drawn = await gather(
        steps.ask(role, question, tools.llm, reader, **fields), *(draws if measured else ())
    )
    if role.startswith("continue"):
        reply = reply._replace(text=loops.with_full_stop(reply.text))
    texts = [one.text for one in drawn if one.text.strip()]
    return Sampled(reply, prompt, await _measure(prompt, texts, tools, config))


async def _measure(prompt: Prompt, texts: Sequence[str], tools: Tools, config: Config) -> float:
    """The uncertainty of a prompt by its samples that are not blank; infinite without any."""
    if not texts:
        return math.inf
    layer = None if config.layer < 0 else config.layer
    ends = await gather(
        *(tools.inspection.state(prompt, text, layer=layer, part=config.state) for text in texts)
    )
    states = np.zeros((config.samples, len(ends[0].state)), np.float32)
    states[: len(ends)] = [end.state for end in ends]
    where = np.arange(config.samples) < len(ends)
    return float(_uncertainty(states, where=where, alpha=np.float32(config.alpha)))


async def _query(
    question: Question, said: Sampled, notes: _Notes, tools: Tools, config: Config
) -> str:
    """The step's confident words and those that occur in the question or the last step.

    If there are none, the question's.
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
) -> Sampled | None:
    """The least uncertain of the steps from each new passage; None if no passage is new."""
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
            _say("continue", question, notes.so_far, [*notes.rows, row], tools, config)
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
    """The less uncertain of the answers read from the steps and from the passages."""
    lines = (one for said in notes.said for one in sentences(said.reply.text))
    rationale = "\n".join(line for line in lines if stated_answer(line) is None)
    readings = await gather(
        _stated(question, rationale, tools, config), _stated(question, notes.rows, tools, config)
    )
    names = ("steps", "passages")
    valid = [_valid(one.reply.text) for one in readings]
    scores = [one.uncertainty for one in readings]
    # as released: of two equally uncertain ones, that of the passages
    order = [1, 0] if valid[0] == valid[1] else [valid.index(True)]
    chosen = min(order, key=scores.__getitem__)
    trace["readings"] = {name: one.record() for name, one in zip(names, readings, strict=True)} | {
        "chosen": names[chosen]
    }
    return readings[chosen].reply


async def _stated(
    question: Question, evidence: Sequence[int] | str, tools: Tools, config: Config
) -> Sampled:
    """A stated answer from passages, or from a rationale in their place."""
    said = await _say("complete", question, "", evidence, tools, config)
    if stated_answer(said.reply.text) is not None:
        return said
    so_far = f"{f' {said.reply.text}' if said.reply.text else ''}{_CUE}"
    forced = await _say("complete", question, so_far, evidence, tools, config, measured=False)
    text = f"{so_far} {forced.reply.text}".strip()
    made = loops.joined(text, [said.reply.generation, forced.reply.generation])
    return said._replace(reply=said.reply._replace(text=text, raw=text, generation=made))


def _valid(text: str) -> bool:
    """Whether a text states an answer other than unknown."""
    stated = stated_answer(text)
    return stated is not None and "unknown" not in stated.lower()


def _record_gate(trace: steps.Trace, config: Config) -> None:
    """Writes the decision over all steps into the trace."""
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
