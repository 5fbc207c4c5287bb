"""What a method holds: the run's language model, index and reranker, and its own helpers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from jaxrag.steps.inspection_tool import InspectionTool
from jaxrag.steps.language_model_tool import LanguageModelTool
from jaxrag.steps.needs import Helper, HelperTool
from jaxrag.steps.search_tools import RerankerTool, RetrieverTool
from jaxrag.types import InputError

Tool = TypeVar("Tool", bound=HelperTool)


class MissingTool:
    """Stands for a tool that the run lacks: every use of it is an error that says what to set."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's own questions, such as those of copy and pickle
            raise AttributeError(name)
        raise InputError(self._message)


NO_INDEX: Any = MissingTool("This method searches, but the run has no index: set config.index.")
NO_RERANKER: Any = MissingTool(
    "This method reranks, but the run has no reranker: set config.reranker."
)
NO_INSPECTION: Any = MissingTool(
    "This method needs attentions and hidden states: use the local engine (config.model as Local), "
    "the only one that gives them."
)


@dataclasses.dataclass(frozen=True)
class Tools:
    """All that a method may use; every call goes through the scheduler and the store.

    Attributes:
      llm: the language model that reads.
      retriever: the index.
      reranker: scores passages for a query.
      inspection: attentions and hidden states of ``llm``.
      helpers: the tools of the method's helpers, by their settings.
    """

    llm: LanguageModelTool
    retriever: RetrieverTool = NO_INDEX
    reranker: RerankerTool = NO_RERANKER
    inspection: InspectionTool = NO_INSPECTION
    helpers: Mapping[Helper[Any], Any] = dataclasses.field(default_factory=dict)

    def helper(self, settings: Helper[Tool]) -> Tool:
        """The loaded helper of these settings.

        Raises:
          InputError: the method's `needs` do not name it.
        """
        if settings not in self.helpers:
            raise InputError(
                f"{settings} is not loaded: a method names such settings in the helpers of its "
                "needs, under the field that holds them."
            )
        return self.helpers[settings]
