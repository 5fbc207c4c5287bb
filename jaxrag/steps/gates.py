"""Gates: should this question be answered with retrieval? Those of DTR and PAIRS are in methods."""

from __future__ import annotations

import contextlib
import dataclasses

from jaxrag.engines.language_model import ModelSettings
from jaxrag.steps.episode import Episode
from jaxrag.text.sentences import first_word
from jaxrag.types import InputError

RATIO = "ratio:"
"""Begins a threshold that is the share of questions that shall retrieve."""


def read_ratio(name: str, threshold: float | str) -> float | None:
    """The share of a threshold "ratio:SHARE", from 0 to 1; None for a number, else InputError."""
    if not isinstance(threshold, str):
        return None
    with contextlib.suppress(ValueError):
        share = float(threshold.removeprefix(RATIO))
        if threshold.startswith(RATIO) and 0 <= share <= 1:
            return share
    raise InputError(f"{name} is {threshold!r}: give a number, or {RATIO}SHARE from 0 to 1.")


def numeric_threshold(threshold: float | str) -> float:
    """A gate's threshold as a number; InputError for a ratio, which only a run turns into one."""
    if isinstance(threshold, str):
        raise InputError(
            f"the gate's threshold is {threshold!r}: a run turns this into a number, by the scores "
            "of training questions; elsewhere give a number."
        )
    return threshold


@dataclasses.dataclass(frozen=True)
class Always:
    """Retrieves for every question."""

    async def __call__(self, episode: Episode) -> bool:
        """Decides to retrieve."""
        return episode.decided("always", True)


@dataclasses.dataclass(frozen=True)
class JudgeGate:
    """DTR's LLM Judge baseline: a language model decides whether retrieval is needed.

    The first word of its answer decides; anything but "no" retrieves. Without a ``judge`` the run's
    model is asked.
    """

    judge: ModelSettings | None = None

    async def __call__(self, episode: Episode) -> bool:
        """Prompts the judge with the reader's prompts."""
        reply = await episode.ask("judge", model=self.judge)
        verdict = first_word(reply.text.lower())
        junk = verdict not in ("yes", "no")
        return episode.decided("judge", verdict != "no", verdict=reply.text, junk=junk)
