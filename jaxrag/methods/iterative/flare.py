"""FLARE (Jiang et al. 2023), its "direct" kind: retrieves if the next sentence is uncertain.

The answer is written sentence by sentence:

1. Generate a tentative sentence without passages.
2. If each of its tokens has at least the probability ``theta``, keep it.
3. Otherwise search by the sentence without its words less probable than ``beta``, and generate it
   again from the passages found.
4. Stop if the sentence states the answer, the model has no more to write, or there are
   ``max_sentences``.

The answer is read from the text as in `chain_of_thought`; if it states none, it is marked as junk.

Generation stops at the end of a sentence; whichever mark ended it before a blank is restored as a
full stop.

Source and differences from the original: docs/methods, "FLARE".
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

from jaxrag.core.checks import check_limits, check_range
from jaxrag.steps import loops
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Candidates, Episode, PassageSelector
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs
from jaxrag.types import Generation


@dataclasses.dataclass(frozen=True)
class LookAhead:
    """When to retrieve, and which words of the tentative sentence are searched for.

    Attributes:
      theta: retrieve if a token is less probable; 0 never retrieves, 1 always.
      beta: words with a less probable token are left out of the query; 0 leaves none out. Above 0
        the model must give its tokenizer.
    """

    needs = Needs(logprobs=True)

    theta: float = 0.8
    beta: float = 0.4

    def __post_init__(self) -> None:
        check_range(1.0, **{"gate.theta": self.theta, "gate.beta": self.beta})

    def retrieves(self, least: float) -> bool:
        """Whether to retrieve, given the least probability; theta 1 retrieves at probability 1."""
        return least < self.theta or self.theta == 1


@dataclasses.dataclass(frozen=True)
class Config:
    """As released for 2WikiMultihopQA, but for ``max_sentences``: the original limits tokens.

    Attributes:
      candidates, select: which passages, for each sentence that needs some.
      reader: prompts and decoding; its ``answer_tokens`` are not used.
      sentence_tokens: most new tokens of a sentence; a longer one is cut there.
    """

    name = "flare"

    gate: LookAhead = LookAhead()
    candidates: Candidates = OnePath(n=2)
    select: PassageSelector = Top(k=2)
    reader: Reader = Reader(prompts="baselines")
    sentence_tokens: int = 64
    max_sentences: int = 8

    def __post_init__(self) -> None:
        self.reader.check_stated(self.name)
        check_limits(sentence_tokens=self.sentence_tokens, max_sentences=self.max_sentences)

    async def answer(self, episode: Episode) -> Reply:
        """Writes sentences until one states the answer."""
        kept: list[Reply] = []
        records: list[dict[str, Any]] = []
        while len(kept) < self.max_sentences:
            sentence = await self._next_sentence(episode, kept, records)
            cut = sentence.generation.finish_reason == "length"
            text = sentence.text if cut else loops.with_full_stop(sentence.text)
            kept.append(sentence._replace(text=text))
            if loops.is_last(sentence, self.reader):
                break
        decided = [record for record in records if record["least"] is not None]
        retrieved = [record for record in decided if record["retrieve"]]
        episode.decided(
            "flare",
            bool(retrieved),
            least=min(record["least"] for record in decided),
            theta=self.gate.theta,
            retrieved=len(retrieved),
            of=len(decided),
        )
        episode.note(sentences=records)
        return loops.answer_stated(episode, kept)

    async def _next_sentence(
        self, episode: Episode, kept: Sequence[Reply], records: list[dict[str, Any]]
    ) -> Reply:
        """The next sentence: the tentative one or, if that is uncertain, one from passages."""
        limit = self.sentence_tokens
        fields: dict[str, Any] = {
            "question": loops.with_choices(episode.question),
            "so_far": loops.so_far(kept),
        }
        tentative = await episode.ask("continue_direct", limit=limit, **fields)
        finished = bool(fields["so_far"]) and not tentative.text
        least = None if finished else least_probability(tentative)
        retrieve = least is not None and self.gate.retrieves(least)
        record: dict[str, Any] = {
            "tentative": tentative.record(),
            "least": least,
            "retrieve": retrieve,
        }
        records.append(record)
        if not retrieve:
            return tentative
        query, masked = masked_query(tentative, self.gate.beta, episode)
        part = episode.about(query or episode.question.text, path=f"sentence {len(records)}")
        pool = await loops.retrieve(part, self.candidates, self.select)
        sentence = await episode.ask("continue", passages=pool, limit=limit, **fields)
        if sentence.truncated:
            record["truncated"] = sentence.truncated
        record |= {"masked": masked, "ids": episode.ids(pool), "final": sentence.record()}
        return sentence


def least_probability(reply: Reply) -> float:
    """The probability of the sentence's least probable token; 0 for an empty one."""
    logprobs = _own_logprobs(reply.generation) if reply.text else ()
    return math.exp(min(logprobs, default=-math.inf))


def _own_logprobs(generation: Generation) -> Sequence[float]:
    """The log-probabilities without that of the token that ended the sentence.

    This is the end token, a line break, or the begin of the next sentence. Some servers leave it
    out, which is noticed only if no other token would remain.
    """
    logprobs = generation.logprobs
    return logprobs if generation.finish_reason == "length" else logprobs[:-1] or logprobs


def masked_query(reply: Reply, beta: float, episode: Episode) -> tuple[str, int | None]:
    """The sentence without its words less probable than ``beta``, and the number of these.

    The whole sentence, if no word remains, or if its words and tokens do not match (None).
    """
    words = _words(reply, episode) if beta and reply.text else []
    if words is None:
        return reply.text, None
    sure = [word for word, probability in words if probability >= beta]
    return " ".join(sure) or reply.text, len(words) - len(sure)


def _words(reply: Reply, episode: Episode) -> list[tuple[str, float]] | None:
    """Each word with the probability of its least probable token; None if tokens do not match.

    A word's tokens are counted by those of the text up to its end. The sentence's own mark may be
    in the text and not among the tokens, or the reverse, hence the tolerance of one.
    """
    raw, logprobs = reply.raw.rstrip(), _own_logprobs(reply.generation)
    spans = list(re.finditer(r"\S+", raw))
    start = episode.room("\n", limit=0)

    def tokens(text: str) -> int:
        return start - episode.room(f"\n{text}", limit=0)

    if abs(tokens(raw) - len(logprobs)) > 1:
        return None
    ends = [tokens(raw[: span.end()]) for span in spans]
    return [
        (span.group(), math.exp(min(logprobs[first:last], default=0.0)))
        for span, (first, last) in zip(spans, itertools.pairwise([0, *ends]), strict=True)
    ]
