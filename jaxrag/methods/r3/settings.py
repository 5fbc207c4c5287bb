"""How R3 is trained; docs/methods.md, "R3: schedule"."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxrag.methods.r3.labels import Rules
from jaxrag.methods.r3.schedule import Schedule
from jaxrag.types import InputError

Phases = Literal["both", "offline", "online"]


@dataclasses.dataclass(frozen=True)
class Training(Schedule):
    """How R3 is trained; the defaults are the paper's.

    Attributes:
      phases: "both"; "offline" draws from the pools throughout (plain contrastive learning);
        "online" has no warm-up.
      warmup: share of the steps that draw from the pools.
      rules: labels and draws.
      ahead: passages of a question that the model is asked about at once; more fill its batches,
        fewer ask less of it. What is learned is the same.
      parts: of a batch; while the model is asked about one, passages are found for the next. More
        than 1 gains time where the model runs on devices of its own. What is learned is the same.
      passages: most of them, and of a question's pools in the warm-up, that the objective "kl"
        learns from; it takes all that were found.
    """

    epochs: float = 80.0
    save_every: int = 50
    phases: Phases = "both"
    warmup: float = 0.5
    rules: Rules = Rules()
    ahead: int = 2
    parts: int = 1
    passages: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.phases not in ("both", "offline", "online"):
            raise InputError(f"phases is {self.phases!r}; allowed are both, offline and online.")
        if not 0 <= self.warmup <= 1:
            raise InputError(f"warmup is {self.warmup}; it is a share from 0 to 1.")
        if min(self.ahead, self.parts) < 1 or self.passages < 2:
            raise InputError(
                f"ahead is {self.ahead}, parts {self.parts} and passages {self.passages}: at least "
                "1, 1 and 2."
            )

    def is_online(self, step: int, steps: int) -> bool:
        """Whether step ``step``, from 0, learns from what the retriever finds."""
        if self.phases == "both":
            return step >= round(self.warmup * steps)
        return self.phases == "online"
