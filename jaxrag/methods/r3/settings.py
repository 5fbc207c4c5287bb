"""Settings of trainings of SiDR and R3; docs/methods, "R3: SiDR" and "R3: schedule"."""

from __future__ import annotations

import dataclasses
from typing import Literal

import optax

from jaxrag.core.checks import check_choices, check_limits, check_positive, check_range, check_share
from jaxrag.functional.losses import Form
from jaxrag.methods.r3.labels import Rules
from jaxrag.training.optimisation import check_optimiser, scheduled_optimiser
from jaxrag.training.trainer import TrainingSettings
from jaxrag.types import InputError

Objective = Literal["contrastive", "kl"]
Phases = Literal["both", "offline", "online"]


@dataclasses.dataclass(frozen=True)
class Update:
    """Loss and optimiser.

    Attributes:
      objective: "contrastive", SiDR's and R3's; "kl", RePlug's and R3's ablation.
      form: of the contrastive loss, see `jaxrag.functional.losses.sidr_loss`; of DPR's vectors,
        "dpr" or "paper", which then is `jaxrag.functional.losses.symmetric_contrastive`.
      temperature: of E(q) . E(d) in the loss; its root scales E . T. The paper's is 1. If inner
        products start in the hundreds, a rate of 5e-5 without a long warm-up destroys the network
        (docs/training.md).
      target_temperature: of the targets of "kl".
      top: entries that sparsified vectors keep besides those of the text's own tokens; 0 disables
        sparsification.
      decay: whether the rate then decays linearly to 0 over the remaining steps.
      clip: largest norm of a gradient; 0 disables clipping.
      mean: whether the paper's loss, a sum over the batch, is divided by the batch size, which
        changes the effect of ``clip``.
      dropout: inside the BERT, see `jaxrag.models.bert.network`; BERT's own is 0.1.
    """

    objective: Objective = "contrastive"
    form: Form = "paper"
    temperature: float = 1.0
    target_temperature: float = 1.0
    top: int = 768
    learning_rate: float = 2e-5
    warmup: int = 0
    decay: bool = True
    weight_decay: float = 0.0
    clip: float = 2.0
    mean: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_choices(self, objective=Objective, form=Form)
        check_optimiser(self, "top", "warmup", "weight_decay", "clip")
        check_share(dropout=self.dropout)
        check_positive(temperature=self.temperature, target_temperature=self.target_temperature)

    def optimiser(self, steps: int) -> optax.GradientTransformation:
        """AdamW for a training of ``steps`` steps."""
        return scheduled_optimiser(self, steps, decay="linear" if self.decay else "constant")


@dataclasses.dataclass(frozen=True)
class RetrieverTraining(TrainingSettings):
    """The common part of `SupervisedTraining` and `R3Training`.

    Attributes:
      batch, microbatch: questions, with their passages.
      warmup_epochs: epochs of linear warm-up of the learning rate, instead of ``update.warmup``
        steps; 0 uses that.
      evaluations: number of evaluations, evenly spaced, in place of ``evaluate_every``; without
        either nothing is evaluated. The initial state is evaluated besides.
      keep: shares of the training, such as 0.5 for its middle, after which the retriever is written
        to a directory of its own, besides the one after the last step.
    """

    epochs: float = 40.0
    batch: int = 128
    update: Update = Update()
    warmup_epochs: float = 0.0
    evaluations: int = 0
    keep: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.evaluations, self.evaluate_every) < 0 or (
            self.evaluations and self.evaluate_every
        ):
            raise InputError(
                f"evaluations is {self.evaluations} and evaluate_every {self.evaluate_every}: give "
                "one of them, and 0 or more."
            )
        if not all(0 < share < 1 for share in self.keep):
            raise InputError(f"keep is {self.keep}: shares of the training, between 0 and 1.")
        check_range(warmup_epochs=self.warmup_epochs)

    def update_over(self, questions: int) -> Update:
        """Loss and optimiser of a training on ``questions`` questions: warm-up in steps."""
        if not self.warmup_epochs:
            return self.update
        steps = round(self.warmup_epochs * questions / self.batch)
        return dataclasses.replace(self.update, warmup=steps)

    def steps_between_evaluations(self, steps: int) -> int:
        """Steps between evaluations in a training of ``steps`` steps; 0 never evaluates."""
        if self.evaluations:
            return max(1, round(steps / self.evaluations))
        return self.evaluate_every

    def kept_after(self, steps: int) -> dict[float, int]:
        """The number of steps after which each share of ``keep`` is written."""
        return {share: max(1, round(share * steps)) for share in self.keep}


@dataclasses.dataclass(frozen=True)
class SupervisedTraining(RetrieverTraining):
    """Settings of a contrastive training of SiDR or DPR by gold passages.

    The defaults are those of SiDR's released code: batches of 128, one hard negative of BM25, AdamW
    at 2e-5 without weight decay, linear decay, gradients clipped at 2, 40 epochs. Its loss is
    ``update.form`` "released", its warm-up ``warmup_epochs`` 1.
    """

    negatives: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(negatives=self.negatives)


@dataclasses.dataclass(frozen=True)
class R3Training(RetrieverTraining):
    """How R3 is trained; the defaults are the paper's.

    Attributes:
      phases: "both"; "offline" draws from the pools throughout (plain contrastive learning);
        "online" has no warm-up.
      warmup: share of the steps that draw from the pools.
      ahead: passages of a question that the language model scores at once: more fill its batches,
        fewer save calls. The result of training does not depend on it.
      parts: parts of a batch; while the model scores one, passages are searched for the next. More
        than 1 saves time if the model runs on devices of its own, and changes no result.
      passages: limit of a question's passages that the objective "kl" learns from: retrieved or,
        in the warm-up, from its pools.
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
        check_choices(self, phases=Phases)
        check_range(1.0, warmup=self.warmup)
        check_limits(ahead=self.ahead, parts=self.parts)
        if self.passages < 2:
            raise InputError(f"passages is {self.passages}; it must be at least 2.")

    def is_online(self, step: int, steps: int) -> bool:
        """Whether step ``step``, from 0, learns from retrieved passages."""
        if self.phases == "both":
            return step >= round(self.warmup * steps)
        return self.phases == "online"
