"""PAIRS: parametric-verified adaptive information retrieval and selection.

1. The model writes a pseudo-context p and answers the question q twice: directly, and from p.
2. If the two answers agree, that is the answer, without retrieval (parametric verification):
   `Config.gate`.
3. Otherwise the n best passages by q and by p are the candidates (dual-path retrieval):
   `Config.candidates`.
4. They are scored by cos(theta1 + theta2) (adaptive information selection), `Config.select`, and
   the question is answered from the k best.

`jaxrag.steps.retrieve_and_read.Config.answer` takes these steps in turn. The model is called three
times for an accepted question, four times for the others. ``AIS(score="dynamic")`` and
``Rerank(with_pseudo=True)`` are the variants DPR-AIS-dynamic and DPR-AIS-rerank.

Source: docs/methods, "PAIRS".
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

from jaxrag.core.checks import check_choices
from jaxrag.engines.scheduler import gather
from jaxrag.steps import retrieve_and_read
from jaxrag.steps.candidates import DualPath
from jaxrag.steps.episode import Candidates, Episode, Gate, PassageSelector
from jaxrag.steps.gates import numeric_threshold, read_ratio
from jaxrag.steps.passage_selectors import AIS
from jaxrag.steps.reader import Reader
from jaxrag.text import answers
from jaxrag.types import InputError

_LEAST_F1 = 1e-9
"""Below the F1 of any two answers that share a word."""


@dataclasses.dataclass(frozen=True)
class AgreementGate:
    """PAIRS' parametric verification: retrieve if two answers of the model disagree.

    One answer is direct, the other is read from a pseudo-context that the model wrote itself.
    The paper leaves the test open ("the same or semantically consistent").

    Attributes:
      test: "exact" compares the normalised strings; "f1" requires a token F1 of at least ``f1``.
      f1: the smallest F1 that counts as agreement, in (0, 1]; "ratio:0.75" is the one at which 75 %
        of training questions retrieve (`jaxrag.runs.calibration`).
      exclude_num: also retrieve if the agreed answer contains a digit (PAIRS' exclude-num).
    """

    test: Literal["exact", "f1"] = "exact"
    f1: float | str = 0.8
    exclude_num: bool = False

    def __post_init__(self) -> None:
        check_choices(self, test=Literal["exact", "f1"])
        if self.ratio is None and not 0 < float(self.f1) <= 1:
            raise InputError(f"gate.f1 is {self.f1}; allowed: above 0, at most 1.")
        if self.ratio is not None and self.test != "f1":
            raise InputError(f"gate.f1 is {self.f1!r}: set gate.test to 'f1', too.")

    @property
    def ratio(self) -> float | None:
        """The share of questions that shall retrieve, if ``f1`` is one."""
        return read_ratio("gate.f1", self.f1)

    def score(self, trace: Mapping[str, Any]) -> float:
        """-F1 of the two answers in a trace; infinite if they retrieve whatever ``f1`` is."""
        first, second = trace["direct"]["text"], trace["gate"]["second"]["text"]
        f1 = answers.token_f1(first, second)
        return -f1 if f1 and not trace["gate"]["excluded"] else math.inf

    def with_threshold(self, threshold: float) -> AgreementGate:
        """The gate that retrieves if -F1 is above ``threshold``."""
        return dataclasses.replace(self, f1=max(-threshold, _LEAST_F1))

    async def __call__(self, episode: Episode) -> bool:
        """Generates both answers and compares them."""
        pseudo, direct = await gather(episode.pseudo_context(), episode.direct())
        second = await episode.read(pseudo)
        agree = self._agree(direct.text, second.text)
        excluded = agree and self.exclude_num and bool(re.search(r"\d", direct.text))
        return episode.decided(
            "agreement",
            not agree or excluded,
            agree=agree,
            excluded=excluded,
            second=second.record(),
        )

    def _agree(self, first: str, second: str) -> bool:
        """Whether two answers agree; empty ones never do."""
        if not answers.normalize(first) or not answers.normalize(second):
            return False
        if self.test == "exact":
            return bool(answers.exact_match(first, [second]))
        return answers.token_f1(first, second) >= numeric_threshold(self.f1)


@dataclasses.dataclass(frozen=True)
class Config(retrieve_and_read.Config):
    """PAIRS' settings; every part can be replaced."""

    gate: Gate | None = AgreementGate()
    # DualPath: the union of the n best by the question and the n best by the pseudo-context
    candidates: Candidates | None = DualPath(n=5)
    # AIS: the k best by cos(theta1 + theta2), angles to the question and the pseudo-context
    select: PassageSelector = AIS(k=3)
    reader: Reader = Reader(prompts="pairs")
    name: str = dataclasses.field(default="pairs", kw_only=True)
