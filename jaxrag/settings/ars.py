"""What ARS-RAG trains: a ranker of rewrites, and a selector of how many to keep."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from jaxrag.methods.tools import CountSelector as Selector
from jaxrag.models.selector_checkpoint import load_selector
from jaxrag.retrieval import ranker
from jaxrag.retrieval.rerank import Reranker
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class RewriteRanker:
    """A ranker that `experiments.train` made.

    Attributes:
      checkpoint: its directory.
    """

    checkpoint: str = ""

    def directory(self) -> Path:
        """The checkpoint's directory.

        Raises:
          InputError: none is given, or it is not there.
        """
        return _directory(
            self.checkpoint,
            "This run ranks rewrites: give --config.rewrite_ranker.checkpoint=DIRECTORY of a "
            "ranker that `experiments.train --config configs/train_ranker.py` has made.",
        )

    def load(self) -> Reranker:
        """Reads the checkpoint onto the devices.

        Raises:
          InputError: none is given, or what is there is no ranker.
        """
        return ranker.load(str(self.directory()))


@dataclasses.dataclass(frozen=True)
class CountSelector:
    """A selector that `experiments.select` made.

    Attributes:
      checkpoint: its directory.
    """

    checkpoint: str = ""

    def directory(self) -> Path:
        """The checkpoint's directory.

        Raises:
          InputError: none is given, or it is not there.
        """
        return _directory(
            self.checkpoint,
            "This run chooses how many rewrites to keep: give "
            "--config.count_selector.checkpoint=DIRECTORY of a selector that "
            "`experiments.select --config configs/train_selector.py` has made.",
        )

    def load(self, retriever: Retriever | TextRetriever) -> Selector:
        """Reads the checkpoint.

        Args:
          retriever: whose encoder embeds the questions.

        Raises:
          InputError: none is given, what is there is no selector, or it was trained on the vectors
            of another encoder.
        """
        directory = self.directory()
        if isinstance(retriever, TextRetriever):
            raise InputError(
                "A selector chooses by the question's vector, and the run's index has no encoder: "
                "choose an index with one, such as Exact."
            )
        return load_selector(directory, encoder=json.loads(retriever.encoder.identity))


def _directory(checkpoint: str, how: str) -> Path:
    if not checkpoint:
        raise InputError(how)
    if not Path(checkpoint).is_dir():
        raise InputError(f"{checkpoint} is no directory. {how}")
    return Path(checkpoint)
