"""R3's labels: which passages help the language model, and which mislead it.

A passage of a question's pool is positive if the answer that the model writes from it alone has a
gold answer in it, else negative. The probabilities P(y|q,d) of a gold answer y give two thresholds:

    tau+ = max P(y|q,d) over the negatives,    tau- = min P(y|q,d) over the positives.

In training, retrieved passages are labelled by P alone. Probabilities are natural logarithms.

Source: docs/methods, "R3: pools and thresholds", "R3: labels and draws", "R3: open points".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from jaxrag.core.checks import check_choices
from jaxrag.types import InputError

Sampling = Literal["A", "B", "C"]
Overlap = Literal["positive", "negative"]
Between = Literal["negative", "neither"]
FromPools = Literal["random", "as_sampled"]

POSITIVE, NEITHER, NEGATIVE = 1, 0, -1


@dataclasses.dataclass(frozen=True)
class Rules:
    """Rules for labelling and drawing passages.

    Attributes:
      sampling: "A", the most relevant negative and a random positive (the paper's); "B", a random
        one of each; "C", the most relevant of each.
      overlap: label of a passage whose P meets both conditions, which is possible if tau- > tau+:
        "positive" or "negative". The paper names the positive condition first.
      between: label of a passage that is positive for none of several gold answers and not negative
        for all: "negative" (the paper's "otherwise") or "neither", as for a single answer.
      later: whether positives ranked below the first negative count. The paper stops there.
      from_pools: how passages are drawn from a question's pools, in the warm-up and where retrieval
        gives none: "random" (the paper falls "back to sampling from the initial pool"), or
        "as_sampled", by ``sampling``, as retrieved ones.
    """

    sampling: Sampling = "A"
    overlap: Overlap = "positive"
    between: Between = "negative"
    later: bool = False
    from_pools: FromPools = "random"

    def __post_init__(self) -> None:
        check_choices(
            self, sampling=Sampling, overlap=Overlap, between=Between, from_pools=FromPools
        )


class LabelledPool(NamedTuple):
    """The passages of a question before training, as rows, most relevant first.

    ``above`` and ``below`` are its thresholds log tau+ and log tau- for each gold answer.
    """

    positives: tuple[int, ...]
    negatives: tuple[int, ...]
    above: tuple[float, ...]
    below: tuple[float, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """All passages."""
        return self.positives + self.negatives


class Drawn(NamedTuple):
    """The passages of a question in one step, and whether each was just retrieved ("online")."""

    positive: int
    negative: int
    online: tuple[bool, bool]


def make_pool(
    passages: Sequence[int], passes: Sequence[bool], logprobs: Sequence[Sequence[float]]
) -> LabelledPool | str:
    """The pools and thresholds of a question; or, as a string, why it is excluded.

    Args:
      passages: rows, most relevant first.
      passes: whether the answer from each contains a gold answer.
      logprobs: log P(y|q,d) of each passage, for each gold answer.

    InputError if a value is not a log-probability.
    """
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
    return LabelledPool(positives, negatives, tuple(of[~good].max(0)), tuple(of[good].min(0)))


def label(logprobs: Sequence[float], pool: LabelledPool, rules: Rules) -> int:
    """Label of a passage by log P(y|q,d) of each gold answer: positive, negative or neither.

    It is positive if it is positive for one of the answers.
    """
    labels = [
        _label_one(value, above, below, rules)
        for value, above, below in zip(logprobs, pool.above, pool.below, strict=True)
    ]
    if POSITIVE in labels:
        return POSITIVE
    if all(value == NEGATIVE for value in labels):
        return NEGATIVE
    return NEGATIVE if len(labels) > 1 and rules.between == "negative" else NEITHER


def _label_one(value: float, above: float, below: float, rules: Rules) -> int:
    if math.isnan(value):
        raise InputError("A log-probability is NaN: the language model's weights may be damaged.")
    helps, misleads = value > above, value < below
    if helps and misleads:
        return POSITIVE if rules.overlap == "positive" else NEGATIVE
    return POSITIVE if helps else NEGATIVE if misleads else NEITHER


def label_choice(logprobs: Sequence[float], gold: int) -> int:
    """Label for a closed question: positive if the gold option is more probable than the others."""
    if any(math.isnan(value) for value in logprobs):
        raise InputError("A log-probability is NaN: the language model's weights may be damaged.")
    others = [value for option, value in enumerate(logprobs) if option != gold]
    return POSITIVE if all(logprobs[gold] > other for other in others) else NEGATIVE


def enough(labels: Sequence[int], rules: Rules) -> bool:
    """Whether the labels of the first passages suffice for `draw`."""
    return NEGATIVE in labels and rules.sampling != "B" and not rules.later


def draw(
    found: Sequence[int],
    labels: Sequence[int],
    pool: LabelledPool,
    rules: Rules,
    random: np.random.Generator,
) -> Drawn:
    """A positive and a negative passage: retrieved ones if there are any, else from the pool.

    ``found`` are rows of retrieved passages, most relevant first; ``labels`` of the first of them.
    """
    labelled = list(zip(found, labels, strict=False))
    negatives = [passage for passage, label in labelled if label == NEGATIVE]
    end = len(labelled)
    if negatives and not rules.later:
        end = [label for _, label in labelled].index(NEGATIVE)
    positives = [passage for passage, label in labelled[:end] if label == POSITIVE]

    def one_of(retrieved: Sequence[int], pooled: Sequence[int], *, first: bool) -> int:
        passages = retrieved or pooled
        if first and (retrieved or rules.from_pools == "as_sampled"):
            return passages[0]
        return passages[int(random.integers(len(passages)))]

    return Drawn(
        one_of(positives, pool.positives, first=rules.sampling == "C"),
        one_of(negatives, pool.negatives, first=rules.sampling != "B"),
        (bool(positives), bool(negatives)),
    )


def with_both(
    found: Sequence[int],
    labels: Sequence[int],
    pool: LabelledPool,
    count: int,
    random: np.random.Generator,
) -> list[int]:
    """``count`` passages of a question, at least one of them positive and one negative.

    They are the first passages retrieved (``found``, none in the warm-up), or passages of the pools
    at random where those are too few. A missing positive or negative is drawn from the pools and
    takes the last place. ``count`` is at least 2.
    """
    label_of = dict.fromkeys(pool.positives, POSITIVE) | dict.fromkeys(pool.negatives, NEGATIVE)
    label_of = dict(zip(found, labels, strict=True)) | label_of
    others = random.permutation([row for row in label_of if row not in found]).tolist()
    ranked = [*found, *others]
    needed = []
    for kind, rows in ((POSITIVE, pool.positives), (NEGATIVE, pool.negatives)):
        candidates = [row for row in ranked[:count] if label_of[row] == kind]
        needed.append(candidates[0] if candidates else rows[int(random.integers(len(rows)))])
    rest = [row for row in ranked if row not in needed][: count - len(needed)]
    return sorted((*rest, *needed), key=ranked.index)
