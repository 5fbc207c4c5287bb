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

An answer that states none is asked for with the words that lead to it, at the uncertainty of the
text before them. As released, words of the question and of the previous step are always confident,
and stopwords are left out.

Source and differences from the released code: docs/methods, "SeaKR".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxrag.core.checks import check_choices, check_limits, check_positive, check_range
from jaxrag.engines.scheduler import gather
from jaxrag.functional import seakr
from jaxrag.functional.on_host import on_host
from jaxrag.methods.inspecting.words import words_of, words_of_tokens
from jaxrag.models.decoder.inspection import StatePart
from jaxrag.steps import loops
from jaxrag.steps.episode import Episode, Pool
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs
from jaxrag.text.sentences import sentences, stated_answer, word_key
from jaxrag.types import InputError, Prompt

_CUE = " So the answer is"

_uncertainty = on_host(seakr.uncertainty)
_least_uncertain = on_host(seakr.least_uncertain)


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
    needs = Needs(search=True, inspection=True)

    threshold: float = -6.0
    samples: int = 20
    layer: int = -1
    state: StatePart = "mlp"
    alpha: float = 1e-3
    sure: float = 0.9
    k: int = 3
    max_steps: int = 7
    max_passages: int = 5
    reader: Reader = Reader(prompts="inspecting")
    tokens: int = 100

    def __post_init__(self) -> None:
        self.reader.check_stated(self.name)
        names = ("samples", "k", "max_steps", "max_passages", "tokens")
        check_limits(**{name: getattr(self, name) for name in names})
        check_choices(self, state=StatePart)
        check_positive(alpha=self.alpha)
        check_range(1.0, sure=self.sure)
        if self.layer < -1:
            raise InputError(f"layer is {self.layer}: they count from 0; -1 is the middle one.")

    async def answer(self, episode: Episode) -> Reply:
        """Reasons step by step, then reads the answer from the steps and from the passages."""
        notes = _Notes(episode, self)
        while len(notes.said) < self.max_steps and len(notes.pool) < self.max_passages:
            if not await notes.step():
                break
            if stated_answer(notes.said[-1].reply.text) is not None:
                break
        chosen = await notes.read()
        uncertain = [u for record in notes.steps if (u := record["uncertainty"]) is not None]
        retrieved = sum(record["retrieve"] for record in notes.steps)
        episode.note(steps=notes.steps)
        episode.decided(
            "seakr",
            bool(retrieved),
            highest=max(uncertain, default=None),
            threshold=self.threshold,
            retrieved=retrieved,
            of=len(notes.steps),
        )
        return loops.answer_stated(episode, [chosen], read=notes.pool or None)


class Sampled(NamedTuple):
    """The greedy text for a prompt, and its uncertainty by samples."""

    reply: Reply
    prompt: Prompt
    uncertainty: float

    def record(self) -> dict[str, Any]:
        """Text and uncertainty as plain JSON."""
        finite = math.isfinite(self.uncertainty)
        return {"text": self.reply.text, "uncertainty": self.uncertainty if finite else None}


@dataclasses.dataclass
class _Notes:
    """The state of a question: its steps, the passages kept, the queries used."""

    episode: Episode
    config: Config
    said: list[Sampled] = dataclasses.field(default_factory=list)
    pool: Pool = Pool()
    queries: set[str] = dataclasses.field(default_factory=set)
    steps: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def so_far(self) -> str:
        """The steps, a blank before each."""
        return loops.so_far([sampled.reply for sampled in self.said])

    async def step(self) -> bool:
        """Adds a step, from new passages if it is uncertain; False if no new passage is found."""
        sampled = await self._say("continue", self.so_far, self.pool)
        retrieve = not sampled.reply.text or sampled.uncertainty > self.config.threshold
        self.steps.append({**sampled.record(), "retrieve": retrieve})
        if retrieve:
            query = await self._query(sampled)
            self.steps[-1]["query"] = query
            best = await self._retrieve(query)
            if best is None:
                return False
            sampled = best
        self.said.append(sampled)
        return True

    async def _say(
        self, role: str, so_far: str, evidence: Pool | str, *, measured: bool = True
    ) -> Sampled:
        """The greedy text of a role's prompt and, where ``measured``, its uncertainty.

        ``evidence`` are passages, or a rationale in their place.
        """
        episode, tokens = self.episode, self.config.tokens
        role = role if evidence else f"{role}_direct"
        fields: dict[str, Any] = {
            "question": loops.with_choices(episode.question),
            "so_far": so_far,
            "passages": evidence or None,
            "limit": tokens,
        }
        prompt, _ = episode.prompt(role, **fields)
        stop = episode.template(role).stop
        draws = [
            episode.model().generate(
                prompt, max_new_tokens=tokens, temperature=1.0, stop=stop, seed=seed
            )
            for seed in range(1, self.config.samples + 1)
        ]
        reply, *drawn = await gather(episode.ask(role, **fields), *(draws if measured else ()))
        if role.startswith("continue"):
            reply = reply._replace(text=loops.with_full_stop(reply.text))
        texts = [sample.text for sample in drawn if sample.text.strip()]
        return Sampled(reply, prompt, await self._measure(prompt, texts))

    async def _measure(self, prompt: Prompt, texts: Sequence[str]) -> float:
        """The uncertainty of a prompt by its samples that are not blank; infinite without any."""
        if not texts:
            return math.inf
        config, look = self.config, self.episode.inspection
        layer = None if config.layer < 0 else config.layer
        ends = await gather(
            *(look.state(prompt, text, layer=layer, part=config.state) for text in texts)
        )
        states = np.zeros((config.samples, len(ends[0].state)), np.float32)
        states[: len(ends)] = [end.state for end in ends]
        where = np.arange(config.samples) < len(ends)
        return float(_uncertainty(states, where=where, alpha=np.float32(config.alpha)))

    async def _query(self, sampled: Sampled) -> str:
        """The step's confident words and those that occur in the question or the last step.

        If there are none, the question's.
        """
        question = self.episode.question.text
        plain = [word.bare for word in words_of(question) if word.content]
        if not sampled.reply.text:
            return " ".join(plain)
        raw = sampled.reply.raw
        seen = await self.episode.inspection.look(sampled.prompt, raw)
        words, t = words_of(seen.text, len(seen.text) - len(raw)), len(seen.logprobs)
        indices = words_of_tokens(seen, words)[len(seen.spans) - t :]
        before = question if not self.said else f"{question} {self.said[-1].reply.text}"
        mentioned = {word_key(word) for word in before.split()}
        least = [seen.logprobs[indices == number].min(initial=0.0) for number in range(len(words))]
        sure = [
            word.bare
            for word, logprob in zip(words, least, strict=True)
            if word.content
            and (math.exp(logprob) >= self.config.sure or word_key(word.text) in mentioned)
        ]
        return " ".join(sure or plain)

    async def _retrieve(self, query: str) -> Sampled | None:
        """The least uncertain of the steps from each new passage; None if no passage is new."""
        if query in self.queries:
            return None
        self.queries.add(query)
        pool = await self.episode.search(query, self.config.k, path=f"step {len(self.steps)}")
        new = pool.at([i for i, row in enumerate(pool.rows) if row not in self.pool.rows])
        if not new:
            return None
        grown = [self.pool.union(new.at([i])) for i in range(len(new))]
        tried = await gather(*(self._say("continue", self.so_far, passages) for passages in grown))
        where = np.array([bool(sampled.reply.text) for sampled in tried])
        scores = np.array([sampled.uncertainty for sampled in tried], np.float32)
        best = int(_least_uncertain(scores, where=where))
        self.pool = grown[best]
        ids = self.episode.ids(new)
        records = [{"id": i, **sampled.record()} for i, sampled in zip(ids, tried, strict=True)]
        self.steps[-1] |= {"tried": records, "kept": ids[best]}
        return tried[best]

    async def read(self) -> Reply:
        """The less uncertain of the answers read from the steps and from the passages."""
        lines = (line for sampled in self.said for line in sentences(sampled.reply.text))
        rationale = "\n".join(line for line in lines if stated_answer(line) is None)
        readings = await gather(self._stated(rationale), self._stated(self.pool))
        names = ("steps", "passages")
        stated = [stated_answer(reading.reply.text) for reading in readings]
        valid = [text is not None and "unknown" not in text.lower() for text in stated]
        scores = [reading.uncertainty for reading in readings]
        # as released: of two equally uncertain ones, that of the passages
        order = [1, 0] if valid[0] == valid[1] else [valid.index(True)]
        chosen = min(order, key=scores.__getitem__)
        records = {name: reading.record() for name, reading in zip(names, readings, strict=True)}
        self.episode.note(readings={**records, "chosen": names[chosen]})
        return readings[chosen].reply

    async def _stated(self, evidence: Pool | str) -> Sampled:
        """A stated answer from passages, or from a rationale in their place."""
        sampled = await self._say("complete", "", evidence)
        if stated_answer(sampled.reply.text) is not None:
            return sampled
        so_far = f"{f' {sampled.reply.text}' if sampled.reply.text else ''}{_CUE}"
        forced = await self._say("complete", so_far, evidence, measured=False)
        text = f"{so_far} {forced.reply.text}".strip()
        made = loops.joined(text, [sampled.reply.generation, forced.reply.generation])
        return sampled._replace(reply=sampled.reply._replace(text=text, raw=text, generation=made))
