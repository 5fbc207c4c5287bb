"""String metrics between a predicted answer and gold answers.

Normalisation, exact match and token F1 as in SQuAD (Rajpurkar et al. 2016), with HotpotQA's rule
for yes/no answers (Yang et al. 2018). PAIRS and DTR report these metrics.
"""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Sequence

from jaxrag.types import InputError

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_VERDICTS = frozenset({"yes", "no", "noanswer"})


def normalize(text: str) -> str:
    """Lower-cases, removes ASCII punctuation and articles (a, an, the), and joins by single spaces.

    Punctuation is removed without a space in its place: "U.S." becomes "us", "1,000" "1000".
    """
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the normalised prediction equals any normalised answer, else 0.0."""
    _require_sequence(answers)
    predicted = normalize(prediction)
    return float(any(predicted == normalize(answer) for answer in answers))


def token_f1(prediction: str, answer: str) -> float:
    """Harmonic mean of precision and recall over normalised tokens, counted with multiplicity.

    0.0 if the sides differ and one of them is "yes", "no" or "noanswer". Equal strings
    give 1.0 even if normalisation leaves them empty (as in SQuAD 2.0), so F1 >= exact match.
    """
    predicted, gold = normalize(prediction), normalize(answer)
    if predicted == gold:
        return 1.0
    if predicted in _VERDICTS or gold in _VERDICTS:
        return 0.0
    predicted_tokens, gold_tokens = predicted.split(), gold.split()
    shared = collections.Counter(predicted_tokens) & collections.Counter(gold_tokens)
    # 2PR / (P + R) with P = shared / predicted and R = shared / gold; unequal sides: never 0 / 0.
    return 2 * shared.total() / (len(predicted_tokens) + len(gold_tokens))


def contains(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the normalised prediction has any normalised answer as consecutive whole tokens.

    An answer that normalisation leaves empty is never contained.
    """
    _require_sequence(answers)
    predicted = f" {normalize(prediction)} "
    golds = (normalize(answer) for answer in answers)
    return float(any(f" {gold} " in predicted for gold in golds if gold))


def _require_sequence(answers: Sequence[str]) -> None:
    if isinstance(answers, str):
        raise InputError(
            f"answers must be a sequence of strings, not the one string {answers!r} "
            f"(its characters would be read as answers); pass ({answers!r},)"
        )
