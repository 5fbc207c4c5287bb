"""Builds an index, or a part of it, in a process of its own.

    python -m tests.retrieval.corpus.build_part HERE KIND DIRECTORY NUMBER COUNT [PORT]

HERE holds what `make` wrote. With a PORT the processes are those of `jax.distributed`, and the
first closes the index. Prints the number of devices.
"""

import dataclasses
import sys
from pathlib import Path

import jax

from jaxrag.core.hashing import canonical
from jaxrag.models.bert.towers import tokenizer_path
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval.corpus.builds import WHOLE, BuildPart
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.retrieval.dense.matrix import write_matrix
from jaxrag.retrieval.sidr.bag_of_tokens import BagTokenizer, write_bag_of_tokens
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.sidr.sparse import write_sparse
from jaxrag.types import Passage
from tests.methods.r3 import small_sidr
from tests.models.bert import small_bert
from tests.models.bert.small_bert import WORDS

PASSAGES, SHARD_ROWS = 600, 64  # ten files


def make(here: Path) -> None:
    """A corpus of passages of many lengths, and the networks."""
    texts = [
        " ".join(WORDS[(i * k + k) % len(WORDS)] for k in range(1, 2 + i % 37))
        for i in range(PASSAGES)
    ]
    write_passages(
        here / "passages", (Passage(f"p{i}", WORDS[i % 9], t) for i, t in enumerate(texts))
    )
    small_bert.write(here / "encoder", small_bert.BERT, classifier=False)
    config = small_sidr.BERT | {"vocab_size": 4 + len(WORDS)}
    small_bert.write(here / "sidr", config, classifier=False)


def build(here: Path, kind: str, directory: Path, part: BuildPart) -> None:
    """Builds a part of the index of one kind."""
    passages, sizes = Passages.open(here / "passages"), {"shard_rows": SHARD_ROWS, "part": part}
    if kind == "matrix":
        write_matrix(passages, Encoder.load(str(here / "encoder")), directory, **sizes)
    elif kind == "bag_of_tokens":
        path = tokenizer_path(here / "sidr")
        bags = BagTokenizer.of(load_tokenizer(path), first=4)
        write_bag_of_tokens(passages, bags, directory, **sizes)
    else:
        lengths = {"query_length": 16, "passage_length": 32}
        encoder = SidrEncoder.load(str(here / "sidr"), first=4, top=8, **lengths)
        encoder = dataclasses.replace(encoder, own_tokens=False, identity=canonical({"of": "s"}))
        write_sparse(
            passages,
            encoder.stream_passages,
            encoder.identity,
            directory,
            vocabulary=encoder.dimension,
            length=encoder.entries,
            **sizes,
        )


def main(
    here: str, kind: str, directory: str, number: str = "0", count: str = "1", port: str = ""
) -> None:
    part = BuildPart(int(number), int(count))
    if port:
        jax.distributed.initialize(f"localhost:{port}", part.count, part.number)
    build(Path(here), kind, Path(directory), part)
    if port:
        jax.distributed.shutdown()
        if not part.number:
            build(Path(here), kind, Path(directory), WHOLE)
    print(jax.local_device_count())


if __name__ == "__main__":
    main(*sys.argv[1:])
