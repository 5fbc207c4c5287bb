"""R3: a frozen language model reads the passages of a retriever that was trained for it.

R3 trains the retriever alone (`jaxrag.methods.r3.training`), so answering is plain: search, then
answer from one passage or ten. Answers are scored by containment.

Source: docs/methods, "R3: answering".
"""

from __future__ import annotations

import dataclasses

from jaxrag.steps import retrieve_and_read
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Candidates, PassageSelector
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader


@dataclasses.dataclass(frozen=True)
class Config(retrieve_and_read.Config):
    """The paper's settings with one passage; ten are ``candidates.n=10`` and ``select.k=10``."""

    candidates: Candidates | None = OnePath(n=1)
    select: PassageSelector = Top(k=1)
    reader: Reader = Reader(prompts="r3", answer_tokens=100, closed_tokens=20)
    name: str = dataclasses.field(default="r3", kw_only=True)
