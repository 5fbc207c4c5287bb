"""What a model says next, and how uncertain it is: how far its samples lie apart (SeaKR)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jaxrag.engines.scheduler import gather
from jaxrag.functional import seakr
from jaxrag.steps import asking as steps
from jaxrag.steps import loops, prompts
from jaxrag.steps.tools import Tools
from jaxrag.types import Prompt, Question

_uncertainty = jax.jit(seakr.uncertainty)
_MARKS = (".", "!", "?")


class Sampling(Protocol):
    """The part of a method's config that says how uncertainty is measured."""

    @property
    def samples(self) -> int:
        """Texts drawn to measure it."""
        ...

    @property
    def layer(self) -> int:
        """Whose hidden states, from 0; -1 is the middle one."""
        ...

    @property
    def alpha(self) -> float:
        """Of `jaxrag.functional.seakr.uncertainty`."""
        ...

    @property
    def reader(self) -> steps.Reader:
        """Prompts and decoding."""
        ...

    @property
    def tokens(self) -> int:
        """Most new tokens of a text."""
        ...


class Said(NamedTuple):
    """What the model says greedily, what it was asked, and how uncertain it is."""

    reply: steps.Reply
    prompt: Prompt
    uncertainty: float

    def record(self) -> dict[str, Any]:
        """Text and uncertainty as plain JSON."""
        finite = math.isfinite(self.uncertainty)
        return {"text": self.reply.text, "uncertainty": self.uncertainty if finite else None}


async def say(
    role: str,
    question: Question,
    so_far: str,
    evidence: Sequence[int] | str,
    tools: Tools,
    config: Sampling,
    *,
    measured: bool = True,
) -> Said:
    """Has the model go on, and measures how far its samples lie apart."""
    role = role if evidence else f"{role}_direct"
    reader = dataclasses.replace(config.reader, answer_tokens=config.tokens)
    told = {"question": loops.told(question), "so_far": so_far}
    if evidence:
        shown = evidence if isinstance(evidence, str) else tools.retriever.passages(evidence)
        told["passages"] = steps.show_passages(
            question, shown, tools.llm, reader, {}, role=role, **told
        )
    template = prompts.load(reader.prompts).role(role)
    prompt = template.prompt(**told)
    draws = [
        tools.llm.generate(
            prompt, max_new_tokens=config.tokens, temperature=1.0, stop=template.stop, seed=seed
        )
        for seed in range(1, config.samples + 1)
    ]
    reply, *drawn = await gather(
        steps.ask(role, question, tools.llm, reader, **told), *(draws if measured else ())
    )
    whole = reply._replace(text=_whole(reply)) if role.startswith("continue") else reply
    texts = [one.text for one in drawn if one.text.strip()]
    return Said(whole, prompt, await _measure(prompt, texts, tools, config))


async def _measure(prompt: Prompt, texts: Sequence[str], tools: Tools, config: Sampling) -> float:
    """The uncertainty of a prompt, by its samples that are not blank."""
    if not texts:
        return math.inf
    layer = None if config.layer < 0 else config.layer
    ends = await gather(*(tools.inspection.state(prompt, text, layer=layer) for text in texts))
    states = np.zeros((config.samples, len(ends[0].state)), np.float32)
    states[: len(ends)] = [end.state for end in ends]
    where = np.arange(config.samples) < len(ends)
    return float(_uncertainty(states, where=where, alpha=np.float32(config.alpha)))


def _whole(reply: steps.Reply) -> str:
    """The sentence with its full stop, which a stop string takes away."""
    whole = not reply.text or reply.text.endswith(_MARKS)
    return reply.text if whole else f"{reply.text}."
