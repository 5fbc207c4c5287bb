"""Memory that models and index take on each device, estimated from settings and shapes alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.engines.local.engine import Local
from jaxrag.engines.local.prefill import Sizes
from jaxrag.engines.vllm import Vllm
from jaxrag.models.checkpoint.files import locate, read_config
from jaxrag.models.decoder.config import DecoderConfig, read_decoder_config
from jaxrag.models.device_memory import Devices

BYTES = {"float32": 4, "float16": 2, "half": 2, "bfloat16": 2, "auto": 2}
"""Bytes of a number, by the name of its type; "auto" and other names of vLLM are 16-bit."""

TOKENS = 1024
"""Tokens of a sequence, prompt and answer, for which keys and values are estimated."""

_VLLM = 0.92  # of a device, vLLM's default


class Memory(NamedTuple):
    """Bytes on each device.

    Attributes:
      weights: of the language models.
      cache: keys and values. In vLLM all of its share that is not weights.
      work: activations, scores of attention and logits of our decoder.
      index: vectors that stay on the device, or slabs of them.
      encoders: weights of encoders and rerankers, whole on each device.
    """

    weights: float = 0.0
    cache: float = 0.0
    work: float = 0.0
    index: float = 0.0
    encoders: float = 0.0

    @property
    def peak(self) -> float:
        """All together; states of trainings and batches of encoders come on top."""
        return sum(self)


def device_count(settings: Local | Vllm) -> int:
    """Number of devices that a model lies on."""
    copies = settings.data_parallel if isinstance(settings, Local) else settings.pipeline_parallel
    return copies * settings.tensor_parallel


def vllm_share(settings: Vllm, devices: Devices) -> float:
    """Bytes of each device that vLLM takes."""
    return (settings.memory or _VLLM) * devices.memory / devices.share


def number_bytes(settings: Local | Vllm, devices: Devices) -> int:
    """Bytes of a number in which a model computes."""
    return BYTES.get(settings.dtype or ("float32" if devices.cpu else "bfloat16"), 4)


def row_bytes(config: DecoderConfig, size: int) -> int:
    """Bytes of keys and values of `TOKENS` tokens, of ``size`` bytes a number."""
    return TOKENS * 2 * math.prod(config.cache_shape) * size


def model_memory(
    config: DecoderConfig, settings: Local | Vllm, devices: Devices, *, taken: float = 0.0
) -> Memory:
    """Memory of a decoder on each of its devices, with sequences of 1,024 tokens.

    In our engine, summed over the devices:

    weights + (2 R + P) S s + P C (2 H + 3 I) b + 4 P A C S + 8 R V, with R rows decoded and P
    prompts read at once, in chunks of C tokens; S = 1,024 slots of s bytes, the keys and values of
    a token (those of R twice, since a call that decodes holds a copy in another layout); H and I
    the widths of layers and MLP, A heads of attention, V tokens of the vocabulary, b bytes a
    number. Not measured on a GPU; of Qwen2.5-7B, Llama-3-8B and Gemma-2-9B it is within 7 % of the
    TPU compiler's analysis (docs/tpu.md). vLLM takes its share, or at least the weights and a row.

    Args:
      settings: of the engine; what is 0 there is chosen as the engine does for these devices.
      taken: bytes of each device that other models and the index use.
    """
    size = number_bytes(settings, devices)
    weights = (1 if settings.quantization else size) * config.parameters
    if isinstance(settings, Vllm):
        share = weights / device_count(settings)
        row = row_bytes(config, size) / settings.tensor_parallel
        return Memory(share, max(vllm_share(settings, devices) - share, row))
    count, share = device_count(settings), weights / settings.tensor_parallel
    row, free = row_bytes(config, size), count * (devices.memory - taken - share)
    usual = Sizes.fixed(weights) if devices.cpu else Sizes.fitting(max(int(free), 1), row // TOKENS)
    chosen = (settings.prefill_rows, settings.rows, settings.chunk)
    sizes = Sizes.choose(*chosen, int(settings.cache_gib * 2**30), usual=usual)
    rows, prompts, chunk = sizes.decode_rows, sizes.prefill_rows, sizes.chunk
    cache = 2 * min(rows * row, sizes.cache_bytes) + prompts * row
    layer = prompts * chunk * (2 * config.hidden_size + 3 * config.intermediate_size) * size
    scores = 4 * prompts * config.num_attention_heads * chunk * TOKENS
    work = layer + scores + 8 * rows * config.vocab_size
    return Memory(share, cache / count, work / count)


def decoder_of(spec: str, published: Mapping[str, DecoderConfig]) -> DecoderConfig | None:
    """The shapes of a checkpoint: ``published``, or read on this machine; None if not known.

    InputError if there is no such checkpoint, or it is of no supported decoder.
    """
    if spec in published:
        return published[spec]
    path = on_disk(spec)
    return None if path is None else read_decoder_config(read_config(path), source=path)


def on_disk(spec: str) -> Path | None:
    """Where a checkpoint lies; None for one of the hub that was not downloaded yet.

    InputError if there is none, and it would not be downloaded.
    """
    if not spec.startswith("hub:"):
        return locate(spec)
    from huggingface_hub import snapshot_download

    repository, _, revision = spec.removeprefix("hub:").partition("@")
    try:
        path = Path(snapshot_download(repository, revision=revision or None, local_files_only=True))
    except (OSError, ValueError):
        return None
    return path if any(path.glob("*.safetensors")) else None


def run_memory(
    models: Mapping[Any, DecoderConfig | None], devices: Devices, index: float, encoders: float
) -> Memory | None:
    """Memory of language models beside an index and encoders, which are loaded before them.

    ``models`` are the settings of `Local` and `Vllm`, in the order in which they are loaded; other
    numbers are bytes on each device. None if the shapes of a model are not known.
    """
    total = Memory(index=index, encoders=encoders)
    for settings, config in models.items():
        if config is None:
            return None
        memory = model_memory(config, settings, devices, taken=total.peak)
        total = Memory(*map(sum, zip(total, memory, strict=True)))
    return total
