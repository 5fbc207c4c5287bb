"""Which passages R3 trains on: what helped the language model, and what misled it.

docs/methods.md, "R3: pools and thresholds", "R3: labels and draws" and "R3: open points". Before
training, the language model answers each question from each passage of its pool alone; answers that
pass make a passage positive, others negative, and the probabilities P(y|q,d) of a gold answer y in
the two pools give two thresholds:

    tau+ = max P(y|q,d) over the negatives,    tau- = min P(y|q,d) over the positives.

In training, passages that the retriever finds are labelled by P alone, without writing an answer.
Probabilities are natural logarithms throughout. What the paper leaves open is a setting of `Rules`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from jaxrag.types import InputError

POSITIVE, NEITHER, NEGATIVE = 1, 0, -1


@dataclasses.dataclass(frozen=True)
class Rules:
    """How passages are labelled and drawn.

    Attributes:
      sampling: "A", the most relevant negative and a random positive (the paper's); "B", a random
        one of each; "C", the most relevant of each.
      overlap: what a passage is whose P meets both conditions, which is possible where tau- is
        above tau+ (the pools' probabilities then do not overlap): "positive" or "negative". The
        paper names the positive condition first.
      between: what a passage is that is positive for none of several gold answers, but not negative
        for all: "negative" (the paper's "otherwise") or "neither", which it is for a single one.
      later: whether positives below the first negative count. The paper stops there.
    """

    sampling: Literal["A", "B", "C"] = "A"
    overlap: Literal["positive", "negative"] = "positive"
    between: Literal["negative", "neither"] = "negative"
    later: bool = False

    def __post_init__(self) -> None:
        allowed = {
            "sampling": ("A", "B", "C"),
            "overlap": ("positive", "negative"),
            "between": ("negative", "neither"),
        }
        for name, values in allowed.items():
            if (given := getattr(self, name)) not in values:
                raise InputError(f"{name} is {given!r}; allowed are {', '.join(values)}.")


class Pool(NamedTuple):
    """The passages of a question before training, and the thresholds that they give.

    Attributes:
      positives, negatives: numbers of passages, each in the order given.
      above: log tau+ for each gold answer.
      below: log tau- for each gold answer.
    """

    positives: tuple[int, ...]
    negatives: tuple[int, ...]
    above: tuple[float, ...]
    below: tuple[float, ...]


class Drawn(NamedTuple):
    """What a question is trained on in one step.

    Attributes:
      positive, negative: numbers of passages.
      online: whether each was among those just found, rather than in the pool.
    """

    positive: int
    negative: int
    online: tuple[bool, bool]


def make_pool(
    passages: Sequence[int], passes: Sequence[bool], logprobs: Sequence[Sequence[float]]
) -> Pool | str:
    """The pools and thresholds of a question; or, as a text, why it is left out.

    Args:
      passages: numbers, most relevant first.
      passes: whether the answer written from each contains a gold answer.
      logprobs: log P(y|q,d) of each passage, for each gold answer.

    Raises:
      InputError: for lists of different lengths, and for what is no log-probability.
    """
    if not len(passages) == len(passes) == len(logprobs):
        raise InputError(
            f"{len(passages)} passages, {len(passes)} verdicts and {len(logprobs)} rows of "
            "log-probabilities: there is to be one of each for a passage."
        )
    for passage, row in zip(passages, logprobs, strict=True):
        if not row or len(row) != len(logprobs[0]) or not all(p <= 0 for p in row):
            raise InputError(
                f"Passage {passage}: {list(row)} are not the log-probabilities of "
                f"{len(logprobs[0])} gold answers, each at most 0."
            )
    positives = tuple(p for p, good in zip(passages, passes, strict=True) if good)
    negatives = tuple(p for p, good in zip(passages, passes, strict=True) if not good)
    if not positives:
        return "no passage gives a right answer"
    if not negatives:
        return "every passage gives a right answer"
    of = np.array(logprobs, np.float64)
    good = np.array(passes)
    return Pool(positives, negatives, tuple(of[~good].max(0)), tuple(of[good].min(0)))


def label(logprobs: Sequence[float], pool: Pool, rules: Rules) -> int:
    """What a passage is by log P(y|q,d) for each gold answer: positive, negative or neither.

    It is positive if it is so for one of the answers.
    """
    each = [
        _label_one(value, above, below, rules)
        for value, above, below in zip(logprobs, pool.above, pool.below, strict=True)
    ]
    if POSITIVE in each:
        return POSITIVE
    if all(one == NEGATIVE for one in each):
        return NEGATIVE
    return NEGATIVE if len(each) > 1 and rules.between == "negative" else NEITHER


def _label_one(value: float, above: float, below: float, rules: Rules) -> int:
    if math.isnan(value):
        raise InputError("A log-probability is NaN: the language model's weights may be damaged.")
    helps, misleads = value > above, value < below
    if helps and misleads:
        return POSITIVE if rules.overlap == "positive" else NEGATIVE
    return POSITIVE if helps else NEGATIVE if misleads else NEITHER


def label_choice(logprobs: Sequence[float], gold: int) -> int:
    """Of questions with options: positive if the gold one is more probable than every other."""
    if any(math.isnan(value) for value in logprobs):
        raise InputError("A log-probability is NaN: the language model's weights may be damaged.")
    others = [value for option, value in enumerate(logprobs) if option != gold]
    return POSITIVE if all(logprobs[gold] > other for other in others) else NEGATIVE


def enough(labels: Sequence[int], rules: Rules) -> bool:
    """Whether the labels of the first passages found suffice, so that others need none."""
    return NEGATIVE in labels and rules.sampling != "B" and not rules.later


def draw(
    found: Sequence[int],
    labels: Sequence[int],
    pool: Pool,
    rules: Rules,
    random: np.random.Generator,
) -> Drawn:
    """A positive and a negative passage, from those found where there are such, else of the pool.

    Args:
      found: numbers of passages, most relevant first.
      labels: of the first of them, or all.
      pool: the question's.
      rules: how.
      random: where draws come from; the same state gives the same passages.
    """
    labelled = list(zip(found, labels, strict=False))
    negatives = [passage for passage, label in labelled if label == NEGATIVE]
    end = len(labelled)
    if negatives and not rules.later:
        end = [label for _, label in labelled].index(NEGATIVE)
    positives = [passage for passage, label in labelled[:end] if label == POSITIVE]
    online = bool(positives), bool(negatives)
    positives, negatives = positives or list(pool.positives), negatives or list(pool.negatives)

    def one_of(passages: list[int]) -> int:
        return passages[int(random.integers(len(passages)))]

    return Drawn(
        positives[0] if rules.sampling == "C" else one_of(positives),
        one_of(negatives) if rules.sampling == "B" else negatives[0],
        online,
    )
