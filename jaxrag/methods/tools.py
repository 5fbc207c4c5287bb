"""What a method holds: its language models, a retriever, and what else it needs, in one `Tools`."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np
from jaxtyping import Float, Int

from jaxrag.methods.inspection_tool import InspectionTool
from jaxrag.methods.language_model_tool import LanguageModelTool
from jaxrag.methods.search_tools import RerankerTool, RetrieverTool
from jaxrag.types import InputError


class CountSelector(Protocol):
    """Chooses how many rewrites a question gets; see `jaxrag.training.selector`."""

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines the choices."""
        ...

    @property
    def arms(self) -> int:
        """The most that it chooses."""
        ...

    def choose(self, contexts: Float[np.ndarray, "q d"]) -> Int[np.ndarray, " q"]:
        """K of each question, from 1, by its embedding."""
        ...


@dataclasses.dataclass(frozen=True)
class SelectorTool:
    """A trained selector of how many rewrites, asked about one question."""

    selector: CountSelector

    async def count(self, text: str, n: int, index: RetrieverTool) -> int:
        """K of a question.

        Raises:
          InputError: the selector was trained for another number of rewrites.
        """
        if self.selector.arms != n:
            raise InputError(
                f"The selector was trained for {self.selector.arms} rewrites, and the question has "
                f"{n}: set method.rewriter.n={self.selector.arms}, or train another selector."
            )
        context = await index.embed(text)
        return int(self.selector.choose(np.asarray(context)[None])[0])


@dataclasses.dataclass(frozen=True)
class Tools:
    """All that a method may use; what a run did not set up is None."""

    llm: LanguageModelTool
    retriever: RetrieverTool | None = None
    reranker: RerankerTool | None = None
    judge: LanguageModelTool | None = None
    rewrite_ranker: RerankerTool | None = None
    count_selector: SelectorTool | None = None
    query_optimizer: LanguageModelTool | None = None
    complexity: LanguageModelTool | None = None
    inspection: InspectionTool | None = None

    @property
    def inside(self) -> InspectionTool:
        """The inside of the model that reads, which must be there.

        Raises:
          InputError: the run has none.
        """
        if self.inspection is None:
            raise InputError(
                "This method needs attentions and hidden states: use the local engine "
                "(config.model as Local), the only one that gives them."
            )
        return self.inspection

    @property
    def optimizer(self) -> LanguageModelTool:
        """The trained model that writes queries, which must be there.

        Raises:
          InputError: the run has none.
        """
        if self.query_optimizer is None:
            raise InputError(
                "This method's queries are written by a trained model, but the run has none: set "
                "config.query_optimizer.checkpoint, or let the reader write them (the frozen "
                "variants)."
            )
        return self.query_optimizer

    @property
    def classifier(self) -> LanguageModelTool:
        """The trained model that says how complex a question is, which must be there.

        Raises:
          InputError: the run has none.
        """
        if self.complexity is None:
            raise InputError(
                "This method asks a trained classifier how complex the question is, but the run "
                "has none: set config.complexity.checkpoint."
            )
        return self.complexity

    @property
    def index(self) -> RetrieverTool:
        """The retriever, which must be there.

        Raises:
          InputError: the run has none.
        """
        if self.retriever is None:
            raise InputError("This method searches, but the run has no index: set config.index.")
        return self.retriever

    @property
    def ranker(self) -> RerankerTool:
        """The reranker, which must be there.

        Raises:
          InputError: the run has none.
        """
        if self.reranker is None:
            raise InputError(
                "This method reranks, but the run has no reranker: set config.reranker."
            )
        return self.reranker

    @property
    def rewrites(self) -> RerankerTool:
        """The ranker of rewrites, which must be there.

        Raises:
          InputError: the run has none.
        """
        if self.rewrite_ranker is None:
            raise InputError(
                "This method ranks rewrites, but the run has no trained ranker: set "
                "config.rewrite_ranker.checkpoint, or method.order to another order."
            )
        return self.rewrite_ranker

    @property
    def selector(self) -> SelectorTool:
        """The selector of how many rewrites, which must be there.

        Raises:
          InputError: the run has none.
        """
        if self.count_selector is None:
            raise InputError(
                "This method chooses how many rewrites to keep, but the run has no trained "
                "selector: set config.count_selector.checkpoint, or method.count to a fixed one."
            )
        return self.count_selector
