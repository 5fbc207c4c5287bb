"""Checks that the settings of a run, and then its language model, meet its method's needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from jaxrag.engines.language_model import LanguageModel, gives_scores
from jaxrag.engines.local.inspection import InspectableModel
from jaxrag.engines.prompts import encoder_of
from jaxrag.retrieval.settings import QueryLikelihood
from jaxrag.runs.loading import describe, load_model
from jaxrag.runs.settings import RunSettings
from jaxrag.steps import prompts
from jaxrag.steps.inspection_tool import InspectionTool
from jaxrag.steps.tools import HelperTool
from jaxrag.types import InputError


@runtime_checkable
class Requiring(Protocol):
    """Settings of a model, index or reranker that need a package or several devices."""

    def require(self) -> None:
        """Raises InputError if these are missing; loads nothing."""
        ...


def check_needs(run: RunSettings, *, given: Mapping[str, HelperTool] | None = None) -> None:
    """Checks, before anything is loaded, that the settings meet the method's needs; or InputError.

    ``given`` are helpers that need no settings.
    """
    prompts.own_files(describe(run.method))
    needs = run.needs
    if needs.search and run.index is None:
        raise InputError(f"{run.name} searches, but the run has no index: set config.index.")
    if needs.vectors and run.index and not run.index.gives_vectors:
        raise InputError(
            f"{run.name} compares vectors, and the index {run.index.name} has none: choose one "
            "with an encoder, such as Exact or Scann, or settings of the method that do without, "
            "such as Top or Rerank as the selector of passages."
        )
    if needs.reranker and run.reranker is None:
        raise InputError(f"{run.name} reranks, but the run has no reranker: set config.reranker.")
    for field, helper in needs.helpers.items():
        if field not in (given or {}):
            helper.check(f"config.method.{field}")


def language_model_of(run: RunSettings, cache: Path) -> LanguageModel:
    """The run's language model, loaded once; InputError if the method needs what it lacks."""
    model, needs = load_model(run.model, cache), run.needs
    if needs.logprobs and not model.gives_logprobs:
        raise InputError(
            f"{run.name} decides by the log-probabilities of the model's answers, and "
            f"{run.model.name} gives none: choose another model, or a method that needs "
            "none, such as configs/pairs.py:pairs."
        )
    reranks = needs.reranker and isinstance(run.reranker, QueryLikelihood)
    if (needs.scores or reranks) and not gives_scores(model):
        raise InputError(
            f"{run.name} compares the log-probabilities of given texts, and {run.model.name} gives "
            "none: of a server, name the model's checkpoint as config.model.tokenizer; or choose "
            "another engine, or settings that do without (by=text, another reranker)."
        )
    if needs.prompt_length:
        prompt_limit(run, model)
    if needs.inspection:
        inspection_of(run, model)
    return model


def prompt_limit(run: RunSettings, model: LanguageModel) -> dict[str, int]:
    """The model's maximum length, on which results depend where passages are truncated."""
    encode = encoder_of(model)
    if encode is None:
        raise InputError(
            f"{run.name} truncates passages (reader.truncate), but the tokenizer or the maximum "
            f"length of {run.model.name} is not known: for a server, set `tokenizer` to the "
            "model's checkpoint and let the server report max_model_len (or set max_length), or "
            "set reader.truncate=False."
        )
    return {"max_length": encode.max_length}


def inspection_of(run: RunSettings, model: LanguageModel) -> InspectionTool:
    """Reads the model's attentions and hidden states; InputError if its engine gives none."""
    if not isinstance(model, InspectableModel):
        raise InputError(
            f"{run.name} needs the model's attentions and hidden states, and the engine of "
            f"{run.model.name} ({type(run.model).__name__}) has none: use the local engine."
        )
    return InspectionTool(model)
