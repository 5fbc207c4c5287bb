"""Our decoders against Hugging Face's torch models of the same random weights: largest differences.

    python -m benchmarks.decoder_parity

The models have 2 or 3 layers and settings away from every default (windows shorter than the text,
soft caps that bite, scaled rotations); float32 on both sides. Columns:

- logits: of 3 texts of 24, 19 and 5 tokens in one batch with padding on the left, at positions from
  0 and from 60; and the largest logit.
- attention, state, entropy: what `LocalModel.inspect` returns for a continuation of 39 tokens, read
  in chunks: weights of the last layer, a hidden state, entropies of the predictions (nats).
- greedy: answers of `LocalModel.generate` that equal torch's in all of 24 tokens, to prompts of 2,
  31, 9 and 92 tokens.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrag.engines.local.engine import Local, LocalModel
from jaxrag.models.checkpoint.files import write_checkpoint
from jaxrag.models.decoder.checkpoint import load_decoder, parameter_shapes
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.network import Decoder
from tests.models.decoder import test_inspection_parity, test_parity
from tests.models.decoder.reference import CONFIGS, random_tensors, stored


def logit_differences(directory: Path, name: str) -> tuple[float, float]:
    """The largest difference of logits, and the largest logit."""
    config = CONFIGS[name]
    shapes = parameter_shapes(Decoder(read_decoder_config(config, source=name)))
    write_checkpoint(directory, config, stored(config, random_tensors(shapes)))
    theirs = test_parity.torch_model(directory)
    decoder, params = load_decoder(directory, dtype=jnp.dtype("float32"))
    tokens = np.random.default_rng(1).integers(3, 97, (3, 24)).astype(np.int32)
    pad, worst, largest = np.array([0, 5, 19]), 0.0, 0.0
    real = np.arange(24) >= pad[:, None]
    for offset in (0, 60):
        wanted = test_parity.torch_logits(theirs, tokens, pad, offset)[real]
        own = test_parity.of_length(decoder, 24 + offset)
        found = test_parity.our_logits(own, params, tokens, pad, offset)[real]
        worst = max(worst, float(np.abs(found - wanted).max()))
        largest = max(largest, float(np.abs(wanted).max()))
    return worst, largest


def inspection_differences(directory: Path, name: str) -> Iterator[float]:
    """Largest differences of attention weights, of a hidden state, and of entropies."""
    config = {"rope_scaling": None, **CONFIGS[name], "vocab_size": 260, "eos_token_id": 257}
    test_parity.write_tiny_model(directory, **config)
    prompt, added = test_inspection_parity.PROMPT, test_inspection_parity.ADDED
    model = LocalModel.load(Local(str(directory), **test_parity.SMALL))
    tokens = model.tokenizer.encode(prompt + added, add_special_tokens=False)
    wanted: Any = test_inspection_parity.theirs(directory, tokens)
    (found,), p = model.inspect([prompt], [added], layer=0), len(prompt)
    logp = wanted.logits[0].log_softmax(-1).numpy().astype(np.float64)[p - 1 : -1]
    yield np.abs(found.attention - wanted.attentions[-1][0].numpy().mean(0)[p:]).max()
    yield np.abs(found.state - wanted.hidden_states[1][0, -1].numpy()).max()
    yield np.abs(found.entropies + (np.exp(logp) * logp).sum(-1)).max()


def main() -> None:
    """Prints a row of a table as each model is done."""
    headings = ("model", "logits", "largest", "attention", "state", "entropy", "greedy")
    print(f"| {' | '.join(headings)} |\n|{' --- |' * len(headings)}")
    for name in test_parity.FAMILIES:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory)
            worst, largest = logit_differences(path / "a", name)
            seen = [f"{value:.1e}" for value in inspection_differences(path / "b", name)]
            pairs = zip(
                *test_parity.greedy_tokens(path / "c", name, test_parity.PROMPTS, 24), strict=True
            )
            same = [ours == theirs for ours, theirs in pairs]
        cells = (name, f"{worst:.1e}", f"{largest:.1f}", *seen, f"{sum(same)} of {len(same)}")
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
