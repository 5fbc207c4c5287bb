"""Protocols of a method and its helpers: a name, what it needs of the run, and `answer`.

A method's Config holds the settings of the models that it uses beside the run's own (a judge, a
trained ranker), and its `needs` name the fields that hold them. The run loads these helpers, so a
method with a trained model of its own touches no file but its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from jaxrag.engines.language_model import LanguageModel, ModelSettings
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.steps.tools import LanguageModelTool, RerankerTool
from jaxrag.types import Answer, InputError, Question

if TYPE_CHECKING:
    from jaxrag.steps.tools import Tools


class LoadedRun(NamedTuple):
    """The parts of a run that are loaded before its helpers.

    Attributes:
      method: the Config that uses the helpers.
      llm: the run's language model.
      retriever: the run's index; None for a method that does not search.
      load_model: loads another language model, once per settings.
      cache: directory of files kept between runs.
    """

    method: Method
    llm: LanguageModel
    retriever: Retriever | TextRetriever | None
    load_model: Callable[[ModelSettings], LanguageModel]
    cache: Path


class Trial(Protocol):
    """Random stand-ins for models, by which `jaxrag.runs.calls` counts a run's calls."""

    def draw(self, *parts: object) -> int:
        """A random number, at least 0, determined by this trial and ``parts``."""
        ...

    def language_model(self) -> LanguageModelTool:
        """A language model with random texts and log-probabilities."""
        ...

    def reranker(self) -> RerankerTool:
        """A reranker with random scores."""
        ...


class HelperTool(Protocol):
    """A loaded helper as the method uses it."""

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines its results."""
        ...


Tool = TypeVar("Tool", bound=HelperTool, covariant=True)


class Helper(Protocol[Tool]):
    """Settings of a model that a method uses beside the run's own; a frozen dataclass."""

    @property
    def name(self) -> str:
        """Name in tables and plans."""
        ...

    def check(self, field: str) -> None:
        """Checks that the checkpoint exists, without loading it.

        Args:
          field: command-line name of these settings, as "config.method.order.ranker".

        Raises:
          InputError: it is missing; the message names the setting.
        """
        ...

    def load(self, loaded: LoadedRun) -> Tool:
        """Loads the tool that `Tools.helper` returns.

        Raises:
          InputError: it cannot be loaded, or does not fit the run.
        """
        ...

    def stand_in(self, trial: Trial) -> Tool:
        """A tool with random results, to count the calls of a run before it starts."""
        ...


@dataclasses.dataclass(frozen=True)
class Needs:
    """Requirements of a method, or of a part of one.

    Attributes:
      search: an index.
      vectors: vectors of passages and an encoder of queries, which some indexes lack.
      reranker: a reranker.
      logprobs: log-probabilities of the tokens that the language model writes.
      inspection: the language model's attentions and hidden states.
      prompt_length: the language model's tokenizer and length limit, to truncate passages.
      helpers: settings of other models, by the dotted field of the Config that holds them.
    """

    search: bool = False
    vectors: bool = False
    reranker: bool = False
    logprobs: bool = False
    inspection: bool = False
    prompt_length: bool = False
    helpers: Mapping[str, Helper[Any]] = dataclasses.field(default_factory=dict)

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            self.search or other.search,
            self.vectors or other.vectors,
            self.reranker or other.reranker,
            self.logprobs or other.logprobs,
            self.inspection or other.inspection,
            self.prompt_length or other.prompt_length,
            {**self.helpers, **other.helpers},
        )


class MethodPart(Protocol):
    """A part of a method's Config, such as a gate or a reader."""

    @property
    def needs(self) -> Needs:
        """Requirements of this part."""
        ...


def needs_of(**parts: MethodPart) -> Needs:
    """Combined needs of parts of a Config; keywords are the fields that hold them."""
    found = Needs()
    for field, part in parts.items():
        helpers = {f"{field}.{name}": helper for name, helper in part.needs.helpers.items()}
        found |= dataclasses.replace(part.needs, helpers=helpers)
    return found


class Method(MethodPart, Protocol):
    """A method's Config: its settings as a frozen dataclass, and its algorithm."""

    @property
    def name(self) -> str:
        """Name in records and tables, and key of the papers' numbers."""
        ...

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answers one question."""
        ...


@dataclasses.dataclass(frozen=True)
class ModelHelper:
    """Another language model as a method's helper: a judge, a writer of queries, a classifier.

    Attributes:
      model: settings of the model.
      logprobs: whether its log-probabilities are used.
    """

    model: ModelSettings
    # not compared, so that two parts of a method share one model
    logprobs: bool = dataclasses.field(default=False, compare=False)

    @property
    def name(self) -> str:
        """Name in tables and plans."""
        return self.model.name

    def check(self, field: str) -> None:
        """InputError if no checkpoint is named."""
        if self.model.checkpoint == "":
            raise InputError(
                f"This method uses a trained model, but {field} has no checkpoint: give "
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
                f"This method compares log-probabilities of {self.name}, which returns none: "
                "choose another model."
            )
        return LanguageModelTool(model)

    def stand_in(self, trial: Trial) -> LanguageModelTool:
        """A model that writes random texts."""
        return trial.language_model()


def model_needs(field: str, model: ModelSettings | None, *, logprobs: bool = False) -> Needs:
    """Needs of a part whose ``field`` holds a language model; None is the run's own."""
    if model is None:
        return Needs(logprobs=logprobs)
    return Needs(helpers={field: ModelHelper(model, logprobs)})


def model_tool(model: ModelSettings | None, tools: Tools) -> LanguageModelTool:
    """The language model declared by `model_needs`."""
    return tools.llm if model is None else tools.helper(ModelHelper(model))
