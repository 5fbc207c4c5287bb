"""ARS-RAG's trained helpers: the ranker of rewrites, and the bandit that chooses how many to keep.

A ranker has learned from labels of one rewriter over one corpus, a bandit from rewards under one
order of rewrites and one reader. Each checkpoint records these under ``source``, and a run whose
method differs refuses it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from jaxrag.core.hashing import canonical
from jaxrag.engines.language_model import LanguageModel, ModelSettings
from jaxrag.engines.scheduler import Operation
from jaxrag.evaluation.records import differences
from jaxrag.methods.ars.bandit.trained import load_bandit
from jaxrag.methods.ars.ranker import scorer
from jaxrag.models.checkpoint.files import fingerprint, locate, short_name
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.retriever import QueryEncoder, TextRetriever
from jaxrag.runs.loading import describe
from jaxrag.steps import prompts
from jaxrag.steps.tools import LoadedRun, RerankerTool, embedding, needs_of
from jaxrag.types import InputError

_COMPUTATION = ("engine", "backend", "dtype", "sizes", "stacked", "mesh")

_log = logging.getLogger("jaxrag")


@dataclasses.dataclass(frozen=True)
class _Checkpoint:
    """A trained helper.

    Attributes:
      transfer: use it although it was trained for another source than this run's.
    """

    made_by: ClassVar[str]

    checkpoint: str = ""
    transfer: bool = False

    @property
    def name(self) -> str:
        """The checkpoint, for tables."""
        return short_name(self.checkpoint)

    def check(self, field: str) -> None:
        """InputError where no checkpoint is given, or it does not exist."""
        if not Path(self.checkpoint or "?").is_dir():
            raise InputError(
                f"{self.checkpoint + ' is no directory. ' if self.checkpoint else ''}This method "
                f"{self.made_by.format(field=field)}."
            )

    def _check_source(self, recorded: Mapping[str, Any], here: Mapping[str, Any]) -> None:
        """Refuses a checkpoint that was trained for another source than ``here``."""
        if not recorded:
            _log.warning(
                "%s does not record what it was trained for, so whether it fits this run is "
                "unknown",
                self.checkpoint,
            )
        elif (changed := differences(recorded, here)) and not self.transfer:
            listed = "\n".join(f"  {line}" for line in changed)
            raise InputError(
                f"{self.checkpoint} was trained for another source than this run's:\n{listed}\n"
                "Use a checkpoint that was trained for these settings, or set transfer=True beside "
                "its checkpoint to use it nevertheless."
            )


@dataclasses.dataclass(frozen=True)
class RewriteRanker(_Checkpoint):
    """A ranker that `jaxrag.methods.ars.ranker.job` trained."""

    made_by = (
        "ranks rewrites: give --{field}.checkpoint=DIRECTORY of a ranker that "
        "configs/ars.py:train_ranker@SIZE made, or another method.order"
    )

    def load(self, loaded: LoadedRun) -> RerankerTool:
        """Reads the checkpoint; InputError without a ranker, or for another corpus or rewriter."""
        source, ranker = scorer.read_source(self.checkpoint), scorer.load(self.checkpoint)
        if loaded.retriever is not None:
            model = loaded.method.rewriter.model  # pyright: ignore[reportAttributeAccessIssue]
            llm = loaded.language_model() if model is None else loaded.load_model(model)
            here = labels_source(loaded.method, llm, loaded.retriever.passages)
            self._check_source(source, here)
        return RerankerTool(ranker)


@dataclasses.dataclass(frozen=True)
class BanditTool:
    """Chooses how many rewrites of a question are kept.

    Attributes:
      identity: canonical JSON of all that determines the choices.
      count: the question's embedding [d] and n -> K, from 1 to n.
      encoder: embeds the question for the bandit; None takes its vector from the index.
    """

    identity: str
    count: Callable[[Float[np.ndarray, " d"], int], int]
    encoder: Operation | None = None


@dataclasses.dataclass(frozen=True)
class CountBandit(_Checkpoint):
    """A bandit that `jaxrag.methods.ars.bandit.job` trained.

    Attributes:
      context: the encoder of the questions in its reward table; None is the index's.
    """

    made_by = (
        "chooses how many rewrites to keep: give --{field}.checkpoint=DIRECTORY of one that "
        "configs/ars.py:train_bandit@TABLES made, or a fixed method.count"
    )

    context: BiEncoder | None = None

    def load(self, loaded: LoadedRun) -> BanditTool:
        """Reads the checkpoint.

        InputError where there is none, or one for another encoder, order of rewrites or reader.
        """
        encoder = self._encoder(loaded)
        bandit = load_bandit(Path(self.checkpoint), encoder=json.loads(encoder.identity))
        here = rewards_source(loaded.method, loaded.language_model(), loaded.load_model)
        self._check_source(bandit.source, here)
        embed = None if self.context is None else embedding(encoder.identity, encoder.embed)
        return BanditTool(bandit.identity, bandit.count, embed)

    def _encoder(self, loaded: LoadedRun) -> QueryEncoder:
        if self.context is not None:
            return self.context.load()
        if loaded.retriever is None or isinstance(loaded.retriever, TextRetriever):
            raise InputError(
                "A bandit chooses by the question's vector, and the run's index has no encoder: "
                "choose an index with one, such as Exact, or set bandit.context=BiEncoder, the "
                "encoder of its reward table."
            )
        return loaded.retriever.encoder


def labels_source(method: Any, llm: LanguageModel, corpus: Passages) -> dict[str, Any]:
    """Provenance of the labels of rewrites: the corpus, and the rewriter with its model ``llm``."""
    source = {
        "corpus": corpus.identity,
        "rewriter": {**_described_rewriter(method), "prompts": method.reader.prompts},
        "language_model": _identity(llm),
    }
    return json.loads(canonical(source | _prompt_files(source)))


def rewards_source(
    method: Any, llm: LanguageModel, load: Callable[[ModelSettings], LanguageModel]
) -> dict[str, Any]:
    """Provenance of the rewards of K rewrites: rewriter, order, search and reader.

    ``llm`` reads, and rewrites unless the rewriter names another, which ``load`` loads.
    """
    source = {name: describe(getattr(method, name)) for name in ("order", "search", "reader")}
    source["rewriter"] = _described_rewriter(method)
    if method.rewriter.model is not None:
        source["rewriting_model"] = _identity(load(method.rewriter.model))
    for field, helper in needs_of(method.order).helpers.items():
        if isinstance(helper, RewriteRanker):
            source["order"][field] = fingerprint(locate(helper.checkpoint))
    source |= _prompt_files(source)
    return json.loads(canonical(source | {"language_model": _identity(llm)}))


def _prompt_files(settings: dict[str, Any]) -> dict[str, Any]:
    """Digests of the user's own prompt files; empty without any, as in older checkpoints."""
    files = prompts.own_files(settings)
    return {"prompt_files": files} if files else {}


def _described_rewriter(method: Any) -> dict[str, Any]:
    """The rewriter's settings; its model is recorded by its identity."""
    settings = describe(method.rewriter)
    return {name: value for name, value in settings.items() if name != "model"}


def _identity(llm: LanguageModel) -> dict[str, Any]:
    """A model's identity without how it is computed, which changes no more than last bits."""
    identity = json.loads(llm.identity)
    return {name: value for name, value in identity.items() if name not in _COMPUTATION}
