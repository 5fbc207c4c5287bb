"""ARS-RAG's trained helpers: a ranker of rewrites, and a bandit that chooses how many to keep."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Protocol

import numpy as np

from jaxrag.core.hashing import canonical
from jaxrag.methods.ars.bandit.checkpoint import load_selector
from jaxrag.methods.ars.bandit.selector import Selector
from jaxrag.methods.ars.ranker import scorer
from jaxrag.models.checkpoint.files import short_name
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.steps.needs import LoadedRun, Trial
from jaxrag.steps.tools import RerankerTool, RetrieverTool
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class RewriteRanker:
    """A ranker that `jaxrag.methods.ars.ranker.job` trained.

    Attributes:
      checkpoint: its directory.
    """

    checkpoint: str = ""

    @property
    def name(self) -> str:
        """The checkpoint, for tables."""
        return short_name(self.checkpoint)

    def check(self, field: str) -> None:
        """Refuses a missing checkpoint.

        Raises:
          InputError: none is given, or it is not there.
        """
        _check(
            self.checkpoint,
            f"This method ranks rewrites: give --{field}.checkpoint=DIRECTORY of a ranker that "
            "configs/ars.py:train_ranker@SIZE made, or another method.order.",
        )

    def load(self, loaded: LoadedRun) -> RerankerTool:
        """Reads the checkpoint onto the devices.

        Raises:
          InputError: what is there is no ranker.
        """
        return RerankerTool(scorer.load(self.checkpoint))

    def stand_in(self, trial: Trial) -> RerankerTool:
        """A ranker with drawn scores."""
        return trial.reranker()


class CountTool(Protocol):
    """Chooses how many rewrites of a question are kept."""

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines the choices."""
        ...

    async def count(self, text: str, n: int, retriever: RetrieverTool) -> int:
        """K of a question with ``n`` rewrites, from 1 to ``n``."""
        ...


@dataclasses.dataclass(frozen=True)
class BanditTool:
    """A trained bandit, asked about one question."""

    bandit: Selector

    @property
    def identity(self) -> str:
        """The bandit's."""
        return self.bandit.identity

    async def count(self, text: str, n: int, retriever: RetrieverTool) -> int:
        """K of a question, by its embedding.

        Raises:
          InputError: the bandit was trained for another number of rewrites.
        """
        if self.bandit.arms != n:
            raise InputError(
                f"The bandit was trained for {self.bandit.arms} rewrites, and the question has "
                f"{n}: set method.rewriter.n={self.bandit.arms}, or train another bandit."
            )
        context = await retriever.embed(text)
        return int(self.bandit.choose(np.asarray(context)[None])[0])


@dataclasses.dataclass(frozen=True)
class _DrawnCount:
    """Chooses by drawn numbers."""

    trial: Trial
    identity: str = canonical({"bandit": "made up"})

    async def count(self, text: str, n: int, retriever: RetrieverTool) -> int:
        """A number from 1 to ``n``."""
        context = await retriever.embed(text)
        return 1 + self.trial.draw("count", np.asarray(context).tolist()) % n


@dataclasses.dataclass(frozen=True)
class CountBandit:
    """A bandit that `jaxrag.methods.ars.bandit.job` trained.

    Attributes:
      checkpoint: its directory.
    """

    checkpoint: str = ""

    @property
    def name(self) -> str:
        """The checkpoint, for tables."""
        return short_name(self.checkpoint)

    def check(self, field: str) -> None:
        """Refuses a missing checkpoint.

        Raises:
          InputError: none is given, or it is not there.
        """
        _check(
            self.checkpoint,
            f"This method chooses how many rewrites to keep: give --{field}.checkpoint=DIRECTORY "
            "of one that configs/ars.py:train_bandit@TABLES made, or a fixed method.count.",
        )

    def load(self, loaded: LoadedRun) -> CountTool:
        """Reads the checkpoint.

        Raises:
          InputError: what is there is no bandit, or it was trained on the vectors of another
            encoder than the index has.
        """
        if loaded.retriever is None or isinstance(loaded.retriever, TextRetriever):
            raise InputError(
                "A bandit chooses by the question's vector, and the run's index has no encoder: "
                "choose an index with one, such as Exact."
            )
        encoder = json.loads(loaded.retriever.encoder.identity)
        return BanditTool(load_selector(Path(self.checkpoint), encoder=encoder))

    def stand_in(self, trial: Trial) -> CountTool:
        """A bandit that draws."""
        return _DrawnCount(trial)


def _check(checkpoint: str, how: str) -> None:
    if not checkpoint:
        raise InputError(how)
    if not Path(checkpoint).is_dir():
        raise InputError(f"{checkpoint} is no directory. {how}")
