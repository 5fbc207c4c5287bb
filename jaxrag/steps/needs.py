"""What a method is to a run: a name, what it needs, and the answer to a question.

A method's Config holds the settings of the models that it uses beside the run's own (a judge, a
trained ranker) and says under which of its fields they are. The run loads what is named there, so a
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
from jaxrag.types import Answer, Question

if TYPE_CHECKING:
    from jaxrag.steps.tools import Tools


class LoadedRun(NamedTuple):
    """What of a run is loaded before its helpers.

    Attributes:
      method: the Config that uses the helpers.
      llm: the run's language model.
      retriever: its index; None for a method that does not search.
      load_model: loads another language model, once for all who want it.
      cache: directory of what is kept between runs.
    """

    method: Method
    llm: LanguageModel
    retriever: Retriever | TextRetriever | None
    load_model: Callable[[ModelSettings], LanguageModel]
    cache: Path


class Trial(Protocol):
    """Gives the models of one trial of `jaxrag.runs.calls`, which behave by drawn numbers."""

    def draw(self, *parts: object) -> int:
        """A number, from 0, that this trial and the parts determine."""
        ...

    def language_model(self) -> LanguageModelTool:
        """A language model that writes drawn texts with drawn log-probabilities."""
        ...

    def reranker(self) -> RerankerTool:
        """A reranker with drawn scores."""
        ...


class HelperTool(Protocol):
    """A loaded helper, as the method gets it."""

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines its results."""
        ...


Tool = TypeVar("Tool", bound=HelperTool, covariant=True)


class Helper(Protocol[Tool]):
    """Settings of a model that a method uses beside the run's own; a frozen dataclass."""

    @property
    def name(self) -> str:
        """For tables and plans."""
        ...

    def check(self, field: str) -> None:
        """Refuses a missing checkpoint without loading anything.

        Args:
          field: where these settings are on the command line, as "config.method.order.ranker".

        Raises:
          InputError: it is missing; the message names the setting.
        """
        ...

    def load(self, loaded: LoadedRun) -> Tool:
        """Loads what the method gets from `Tools.helper`."""
        ...

    def stand_in(self, trial: Trial) -> Tool:
        """The same, behaving by drawn numbers: to count the calls of a run before it starts."""
        ...


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a method, or a part of one, requires of the run that it is used in.

    Attributes:
      search: an index.
      vectors: vectors of passages and an encoder of queries, which some indexes lack.
      reranker: a reranker.
      logprobs: log-probabilities of the tokens that the language model writes.
      inspection: the language model's attentions and hidden states.
      prompt_length: the language model's tokenizer and most tokens, to cut passages to what fits.
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
        """What it requires."""
        ...


def needs_of(**parts: MethodPart) -> Needs:
    """What parts of a Config need together; keywords are the fields that hold them."""
    found = Needs()
    for field, part in parts.items():
        helpers = {f"{field}.{name}": helper for name, helper in part.needs.helpers.items()}
        found |= dataclasses.replace(part.needs, helpers=helpers)
    return found


class Method(MethodPart, Protocol):
    """A method's Config: its settings as a frozen dataclass, and its algorithm."""

    @property
    def name(self) -> str:
        """What it is called in records and tables, and looked up by among the papers' numbers."""
        ...

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Answers one question."""
        ...
