"""The reader: prompts and decoding of the language model, and its replies."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, NamedTuple

import numpy as np

from jaxrag.core.checks import check_choices, check_limits
from jaxrag.functional import uncertainty
from jaxrag.functional.on_host import on_host
from jaxrag.steps.tools import Needs
from jaxrag.trace import ReplyRecord, Truncated
from jaxrag.types import Generation, InputError, Prompt

By = Literal["text", "logprob", "calibrated"]
"""How a closed question is answered: by the generated text; by the most probable option; by the
option whose probability exceeds that after an empty prompt most (Zhao et al. 2021)."""

_mean_nll = on_host(uncertainty.mean_nll, static=("rule",))


@dataclasses.dataclass(frozen=True)
class Reader:
    """Prompts and decoding of the language model; InputError for a limit below 1 or another ``by``.

    Attributes:
      prompts: a set of `jaxrag.steps.prompts`, by name or path.
      answer_tokens, passage_tokens: limits of new tokens, of an answer and of a pseudo-context or
        rationale.
      closed_tokens: limit of new tokens of the answer to a closed question; a longer label of its
        data set raises it.
      by: how a closed question is answered.
      temperature: 0 is greedy decoding, as in all papers here.
      repetition_penalty: of tokens that occur in the prompt or the answer so far; 1 is none (DTR's
        released code: 1.1; see `jaxrag.engines.language_model.DecodingOptions`).
      fidelity: tokens that u counts ("paper": all but the end token; "released": all but the last).
      count_reasoning: whether u counts the tokens of reasoning before the answer, too.
      truncate: whether the passages of a prompt that is too long are cut to fit (see
        `jaxrag.steps.prompts.truncation`). Otherwise, or if not even a word of them fits, its
        question ends in an error.
    """

    prompts: str = "dtr"
    answer_tokens: int = 32
    passage_tokens: int = 256
    closed_tokens: int = 8
    by: By = "text"
    temperature: float = 0.0
    repetition_penalty: float = 1.0
    fidelity: uncertainty.Rule = "paper"
    count_reasoning: bool = False
    truncate: bool = False

    def __post_init__(self) -> None:
        names = ("answer_tokens", "passage_tokens", "closed_tokens")
        check_limits(**{name: getattr(self, name) for name in names})
        check_choices(self, by=By)

    def check_stated(self, method: str) -> None:
        """Raises InputError unless ``by`` is "text", for a method that parses what it generates."""
        if self.by != "text":
            raise InputError(
                f"reader.by is {self.by!r}: {method} reads the answer to a question from its "
                "text. Set reader.by=text."
            )

    @property
    def needs(self) -> Needs:
        """The tokenizer and length limit to truncate; scores of the options of closed questions."""
        return Needs(prompt_length=self.truncate, scores=self.by != "text")


class Reply(NamedTuple):
    """A text of the language model, and the answer parsed from it.

    Attributes:
      text: the answer.
      raw: the text of the generation.
      u: mean negative log-likelihood of its tokens in nats (DTR eq 3), see `mean_nll`.
      generation: the generation.
      junk: whether it lacks the tags that the prompt asks for.
      truncated: how the passages of its prompt were cut; None if they were not.
      option_logprobs: of the options that it was chosen from by probability.
      prompt: what the model read.
    """

    text: str
    raw: str
    u: float
    generation: Generation
    junk: bool = False
    truncated: Truncated | None = None
    option_logprobs: tuple[float, ...] = ()
    prompt: Prompt = ""

    def record(self) -> ReplyRecord:
        """Plain JSON; an infinite u (of an empty answer) is null."""
        record: ReplyRecord = {
            "text": self.text,
            "raw": self.raw,
            "u": self.u if math.isfinite(self.u) else None,
            "tokens": len(self.generation.tokens),
            "finish_reason": self.generation.finish_reason,
        }
        if self.generation.reasoning_tokens:
            record["reasoning_tokens"] = self.generation.reasoning_tokens
        if self.junk:
            record["junk"] = True
        if self.truncated:
            record["truncated"] = self.truncated
        if self.option_logprobs:
            record["option_logprobs"] = list(self.option_logprobs)
        return record


NO_TEXT = Generation("", (), (), "length", 0)
"""Stands for a generation where there was none."""

NO_ANSWER = Reply("", "", math.inf, NO_TEXT)
"""The reply of a method that writes data of a training, not answers."""


def mean_nll(generation: Generation, reader: Reader) -> float:
    """DTR eq 3 for one generation: mean token negative log-likelihood, infinite when empty."""
    logprobs = generation.logprobs
    if reader.count_reasoning:
        logprobs = (*generation.reasoning_logprobs, *logprobs)
    count = len(logprobs)
    padded = np.zeros(program_size(count), np.float32)
    padded[:count] = logprobs
    where, ended = np.arange(len(padded)) < count, np.bool_(generation.finish_reason == "end")
    return float(_mean_nll(padded, where=where, ends=ended, rule=reader.fidelity))


def program_size(count: int) -> int:
    """A power of two, at least 16, to pad ``count`` items to: few sizes are few programs."""
    return max(16, 1 << max(count - 1, 0).bit_length())
