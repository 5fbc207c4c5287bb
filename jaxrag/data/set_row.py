"""A question of a published set, with its judged passages and the passages that come with it."""

from __future__ import annotations

from typing import NamedTuple

from jaxrag.core.hashing import digest
from jaxrag.data.dataset import GoldPassage
from jaxrag.types import Passage, Question

OWN = "contexts"
"""Name of the corpus of the passages that a set itself brings."""

OTHERS = "other-contexts"
"""The same corpus, in which a question does not find its own passages."""


class SetRow(NamedTuple):
    """A question of a published set.

    Attributes:
      question: the question.
      gold: its judged passages, where the set marks them.
      contexts: passages that the set brings with the question; a passage has the same id wherever
        it occurs.
    """

    question: Question
    gold: tuple[GoldPassage, ...] = ()
    contexts: tuple[Passage, ...] = ()


def context(title: str, text: str) -> Passage:
    """A passage that has no published id: its id is a hash of its title and text."""
    return Passage(digest(title, text)[:16], title, text)
