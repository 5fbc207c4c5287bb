"""A language model beside the one that reads: a judge, a writer of queries, a classifier."""

from __future__ import annotations

import dataclasses

from jaxrag.engines.language_model import ModelSettings
from jaxrag.steps.needs import LoadedRun, Needs, Trial
from jaxrag.steps.tools import LanguageModelTool, Tools
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class ModelHelper:
    """A language model as a method's helper.

    Attributes:
      model: its settings.
      logprobs: whether its log-probabilities are used.
    """

    model: ModelSettings
    # two parts that use one model, one by its log-probabilities, share one helper
    logprobs: bool = dataclasses.field(default=False, compare=False)

    @property
    def name(self) -> str:
        """The model's, for tables and plans."""
        return self.model.name

    def check(self, field: str) -> None:
        """Refuses settings that name no checkpoint.

        Raises:
          InputError: they name none.
        """
        if self.model.checkpoint == "":
            raise InputError(
                f"This method uses a trained model, and {field} names none: give "
                f"--{field}.checkpoint=DIRECTORY."
            )

    def load(self, loaded: LoadedRun) -> LanguageModelTool:
        """Loads the model.

        Raises:
          InputError: it cannot be loaded, or gives no log-probabilities where they are used.
        """
        model = loaded.load_model(self.model)
        if self.logprobs and not model.gives_logprobs:
            raise InputError(
                f"This method compares log-probabilities of {self.name}, which gives none: choose "
                "another model."
            )
        return LanguageModelTool(model)

    def stand_in(self, trial: Trial) -> LanguageModelTool:
        """A model that writes drawn texts."""
        return trial.language_model()


def model_needs(field: str, model: ModelSettings | None, *, logprobs: bool = False) -> Needs:
    """Needs of a part whose ``field`` holds a language model; None is the one that reads."""
    if model is None:
        return Needs(logprobs=logprobs)
    return Needs(helpers={field: ModelHelper(model, logprobs)})


def model_tool(model: ModelSettings | None, tools: Tools) -> LanguageModelTool:
    """The language model that `model_needs` asks for."""
    return tools.llm if model is None else tools.helper(ModelHelper(model))
