"""Rewrites of a question from one generation, parsed from any output.

ARS-RAG; docs/methods, "ARS-RAG: rewrites and labels" and "ARS-RAG: prompts".
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from typing import Any, NamedTuple

from jaxrag.core.checks import check_limits, check_range
from jaxrag.engines.language_model import ModelSettings
from jaxrag.steps.episode import Episode

# "1." "1)" "(1)" "[1]" "1:" "1 -" "**1.**" "Q1:" "Question 1:" "Rewrite 1." at a line's beginning
_NUMBER = re.compile(
    r"^\W*(?:(?:rewrite|rewritten question|version|question|query|q)\W*)?"
    r"(\d{1,2})(?:\W*[.):\]–—-])+\s*",
    re.I,
)
_WITHIN = re.compile(r"(?<=[?.!\"”])\s+(?=\(?\d{1,2}[.)]\s)")  # "... written? 2. Which ..."
_BULLET = re.compile(r"^\s*[-*•–]\s+")
_QUOTES = "\"'“”‘’*` \t"


@dataclasses.dataclass(frozen=True)
class Rewriter:
    """How rewrites are generated.

    Attributes:
      tokens: most new tokens of all rewrites together, unless the question is long.
      word_tokens: most new tokens of a rewrite for each word of the question. If rewrites of that
        length (and 8 tokens more each) exceed ``tokens``, these are the limit: a rewrite is about
        as long as its question. 0: ``tokens`` always.
      model: the language model that rewrites; None uses the run's, which also answers.
      temperature: of sampling; small models repeat themselves at 0 (not in the paper).
    """

    n: int = 10
    tokens: int = 400
    word_tokens: float = 2.5
    temperature: float = 0.0
    seed: int = 0
    model: ModelSettings | None = None

    def __post_init__(self) -> None:
        check_limits(**{"rewriter.n": self.n, "rewriter.tokens": self.tokens})
        check_range(99, **{"rewriter.n": self.n})
        names = ("temperature", "word_tokens")
        check_range(**{f"rewriter.{name}": getattr(self, name) for name in names})

    def most_tokens(self, question: str) -> int:
        """Most new tokens of all rewrites of a question."""
        if not self.word_tokens:
            return self.tokens
        return max(self.tokens, math.ceil(self.n * (self.word_tokens * len(question.split()) + 8)))


class Rewrites(NamedTuple):
    """``n`` rewrites of a question as generated; the last ``filled`` fill up the list."""

    texts: tuple[str, ...]
    filled: int


def parse_rewrites(raw: str, question: str, n: int, *, cut: bool = False) -> Rewrites:
    """Parses ``n`` rewrites from a generation.

    Numbered lines are rewrites, in any usual style; if none is numbered, all lines that do not end
    in a colon are. Preambles, quotes and empty items are dropped, and so is a rewrite that differs
    from an earlier one only in case, blanks or punctuation. If fewer than ``n`` remain, the list is
    filled with the question, unless it is among them, and then with the rewrites again.

    ``cut`` says that the generation ran out of tokens, so that its last line may be incomplete.
    """
    lines = [part for line in raw.splitlines() for part in _WITHIN.split(line) if part.strip()]
    numbered = [line for line in lines if _NUMBER.match(line)]
    items = numbered or [line for line in lines if not line.rstrip().endswith(":")]
    if cut and items and items[-1] == lines[-1]:
        items = items[:-1]
    unique: dict[str, str] = {}
    for line in items:
        text = _BULLET.sub("", _NUMBER.sub("", line, count=1)).strip(_QUOTES)
        if _same(text):
            unique.setdefault(_same(text), text)
    texts = tuple(unique.values())[:n]
    itself = () if _same(question) in unique else (question,)
    filled = itertools.chain(texts, itself, itertools.cycle(texts or (question,)))
    return Rewrites(tuple(itertools.islice(filled, n)), n - len(texts))


async def rewrite(episode: Episode, rewriter: Rewriter) -> Rewrites:
    """Generates all rewrites of a question at once.

    The trace records them, how many were filled in, and if any was, the raw generation.
    """
    question = episode.question.text
    reply = await episode.ask(
        "rewrite",
        question=question,
        count=str(rewriter.n),
        model=rewriter.model,
        limit=rewriter.most_tokens(question),
        temperature=rewriter.temperature,
        seed=rewriter.seed,
    )
    template = episode.template("rewrite")
    prefix = "1. " if not template.chat and template.user.rstrip().endswith("1.") else ""
    cut = reply.generation.finish_reason == "length"
    rewrites = parse_rewrites(prefix + reply.raw.lstrip(), question, rewriter.n, cut=cut)
    record: dict[str, Any] = {"texts": list(rewrites.texts), "filled": rewrites.filled}
    episode.note(rewrites={**record, "raw": reply.raw} if rewrites.filled else record)
    return rewrites


def _same(text: str) -> str:
    """A text without case, blanks and punctuation."""
    return " ".join(re.findall(r"\w+", text.casefold()))
