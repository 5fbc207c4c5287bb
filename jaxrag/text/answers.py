"""String metrics between a predicted answer and gold answers.

Normalisation, exact match and token F1 as in SQuAD (Rajpurkar et al. 2016), with HotpotQA's rule
for yes/no answers (Yang et al. 2018). PAIRS and DTR report these metrics.
"""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Sequence
from typing import Literal

from jaxrag.text.characters import tokens, unified, within
from jaxrag.types import InputError

Normalization = Literal["squad", "unicode"]
"""How texts are compared: "squad", or "unicode", in which `unified` comes before SQuAD's."""

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
    """1.0 if the normalised prediction equals any normalised answer, else 0.0.

    Where normalisation leaves nothing of both (the answer "The The"), both must have words, or
    both only signs: an empty prediction never matches.
    """
    _require_sequence(answers)
    return float(any(_equal(prediction, answer) for answer in answers))


def token_f1(prediction: str, answer: str) -> float:
    """Harmonic mean of precision and recall over normalised tokens, counted with multiplicity.

    0.0 if the sides differ and one of them is "yes", "no" or "noanswer". Sides that
    `exact_match` takes for equal give 1.0, even empty ones, so F1 >= exact match.
    """
    predicted, gold = normalize(prediction), normalize(answer)
    if predicted == gold:
        return float(_equal(prediction, answer))
    if predicted in _VERDICTS or gold in _VERDICTS:
        return 0.0
    predicted_tokens, gold_tokens = predicted.split(), gold.split()
    shared = collections.Counter(predicted_tokens) & collections.Counter(gold_tokens)
    # 2PR / (P + R) with P = shared / predicted and R = shared / gold; unequal sides: never 0 / 0.
    return 2 * shared.total() / (len(predicted_tokens) + len(gold_tokens))


def contains(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the normalised prediction has any normalised answer as consecutive whole tokens.

    An answer that normalisation leaves empty ("A", "!!!") is contained where the prediction equals
    it or has its `tokens` as they are written, so contains >= exact match.
    """
    return float(_contained(prediction, answers, edge=" "))


def sub_em(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if any normalised answer is a substring of the normalised prediction.

    Characters count, not words: "art" is in "party", where `contains` gives 0. This is what
    FlashRAG calls acc and Search-R1 cover EM. Answers that normalisation leaves empty: `contains`.
    """
    return float(_contained(prediction, answers, edge=""))


def has_answer(text: str, answers: Sequence[str]) -> bool:
    """Whether a passage has any answer as consecutive `tokens`, whatever their case (DPR's rule).

    Articles and punctuation count, unlike in `contains`.
    """
    _require_sequence(answers)
    words = _lowered(text)
    return any(within(_lowered(answer), words) for answer in answers)


def unify(normalization: Normalization, *texts: str) -> tuple[str, ...]:
    """Texts in the form in which a normalisation compares them, before SQuAD's normalisation."""
    return tuple(map(unified, texts)) if normalization == "unicode" else texts


def _lowered(text: str) -> list[str]:
    return [token.lower() for token in tokens(text)]


def _equal(prediction: str, answer: str) -> bool:
    predicted = normalize(prediction)
    if predicted != normalize(answer):
        return False
    return bool(predicted) or _substance(prediction) == _substance(answer) > 0


def _substance(text: str) -> int:
    """2 with a letter or digit, 1 with another visible character, else 0."""
    visible = any(character.isprintable() and not character.isspace() for character in text)
    return visible + any(map(str.isalnum, text))


def _contained(prediction: str, answers: Sequence[str], *, edge: str) -> bool:
    _require_sequence(answers)
    predicted = f"{edge}{normalize(prediction)}{edge}"
    return any(
        f"{edge}{gold}{edge}" in predicted
        if (gold := normalize(answer))
        else _equal(prediction, answer) or within(tokens(answer), tokens(prediction))
        for answer in answers
    )


def _require_sequence(answers: Sequence[str]) -> None:
    if isinstance(answers, str):
        raise InputError(
            f"answers must be a sequence of strings, not one string: pass ({answers!r},)."
        )
