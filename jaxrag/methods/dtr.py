"""DTR: decide then retrieve.

1. The model answers directly; u is the mean negative log-likelihood of the answer's tokens.
2. If u is at most the threshold, that is the answer (uncertainty-guided triggering): `Config.gate`.
3. Otherwise the model writes a pseudo-context; question and pseudo-context are searched for
   (dual-path retrieval): `Config.candidates`.
4. The passages closest to both are kept (adaptive information selection), `Config.select`, and the
   question is answered from them.

`jaxrag.steps.retrieve_and_read.Config.answer` takes these steps in turn.

Source: docs/methods, "DTR".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from jaxrag.functional import uncertainty
from jaxrag.functional.on_host import on_host
from jaxrag.steps import retrieve_and_read
from jaxrag.steps.candidates import DualPath
from jaxrag.steps.episode import Candidates, Episode, Gate, PassageSelector
from jaxrag.steps.gates import numeric_threshold, read_ratio
from jaxrag.steps.passage_selectors import AIS
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import Needs
from jaxrag.types import InputError

_trigger = on_host(uncertainty.trigger, compiled=False)


@dataclasses.dataclass(frozen=True)
class UncertaintyGate:
    """DTR's uncertainty-guided triggering: retrieve if the direct answer's u > threshold.

    u is in nats (DTR eq 3); an empty answer is infinitely uncertain. Threshold 0 always retrieves;
    "ratio:0.75" is the threshold at which 75 % of training questions do
    (`jaxrag.runs.calibration`).
    """

    needs = Needs(logprobs=True)

    threshold: float | str = 0.001

    def __post_init__(self) -> None:
        if self.ratio is None and not float(self.threshold) >= 0:
            raise InputError(
                f"gate.threshold is {self.threshold}; u is a mean of -log p: give >= 0."
            )

    @property
    def ratio(self) -> float | None:
        """The share of questions that shall retrieve, if the threshold is one."""
        return read_ratio("gate.threshold", self.threshold)

    def score(self, trace: Mapping[str, Any]) -> float:
        """u of the direct answer in a trace."""
        u = trace["gate"]["value"]
        return math.inf if u is None else u

    def with_threshold(self, threshold: float) -> UncertaintyGate:
        """The gate with another threshold."""
        return UncertaintyGate(threshold)

    async def __call__(self, episode: Episode) -> bool:
        """Answers directly, then compares u with the threshold."""
        direct, threshold = await episode.direct(), numeric_threshold(self.threshold)
        retrieve = bool(_trigger(direct.u, threshold, rule=episode.reader.fidelity))
        u = direct.record().get("u")  # None where it is infinite
        return episode.decided("nll", retrieve, value=u, threshold=threshold)


@dataclasses.dataclass(frozen=True)
class Config(retrieve_and_read.Config):
    """DTR's settings; every part can be replaced."""

    gate: Gate | None = UncertaintyGate()
    # DualPath: the union of the n best by the question and the n best by the pseudo-context
    candidates: Candidates | None = DualPath(n=5)
    # AIS: the k best by cos(theta1 + theta2), angles to the question and the pseudo-context
    select: PassageSelector = AIS(k=3)
    reader: Reader = Reader(prompts="dtr")
    name: str = dataclasses.field(default="dtr", kw_only=True)
