"""Reads GGUF files, written by llama.cpp, as Hugging Face checkpoints.

The metadata is converted to a config.json and the tensors to Hugging Face's names and layout.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from jaxrag.core.file_states import FileState
from jaxrag.models.checkpoint.stored import StoredTensor
from jaxrag.models.decoder.families import FAMILIES
from jaxrag.types import InputError

# Errors of the gguf package for truncated or corrupt files.
_BROKEN = (ValueError, KeyError, IndexError, OverflowError, MemoryError, struct.error, OSError)

_ARCHITECTURES = ("llama", "qwen2", "qwen3", "phi3", "gemma2")  # Mistral's files say llama
_GLOBAL_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_OWN_NAMES = {
    "gemma2": {"ffn_norm": "pre_feedforward_layernorm"},
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
}
"""Layer names that mean another parameter in a family."""

_ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")


class _Reader(gguf.GGUFReader):
    """Reads the mapped file as a plain array, whose slices are made faster than a memmap's.

    The metadata has two slices for each token of the vocabulary.
    """

    @property
    def data(self) -> np.ndarray:
        """The file's bytes, still mapped."""
        return self._bytes

    @data.setter
    def data(self, mapped: np.memmap) -> None:
        self._bytes = np.asarray(mapped)


def open_gguf(path: Path) -> gguf.GGUFReader:
    """Opens a GGUF file; InputError if it is truncated or not GGUF."""
    state = FileState.of(path)
    return _open(state) if state.settled else _open.__wrapped__(state)


_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")  # as llama.cpp names the parts of a split file


def gguf_parts(path: Path) -> list[Path]:
    """The files of a checkpoint: the file itself, or all parts of one that was split.

    Raises:
      InputError: ``path`` is not the first part, or a part is missing.
    """
    if not (name := _PART.search(path.name)):
        return [path]
    stem, count = path.name[: name.start()], int(name[2])
    parts = [path.with_name(f"{stem}-{i:05d}-of-{count:05d}.gguf") for i in range(1, count + 1)]
    if parts[:1] != [path]:
        raise InputError(f"{path} is a part of a split file: name its first part, {parts[0].name}.")
    if missing := [part.name for part in parts if not part.exists()]:
        raise InputError(
            f"{path} is the first of {count} parts; beside it, {missing[0]} is missing."
        )
    return parts


def _tensors(path: Path) -> list[gguf.ReaderTensor]:
    return [tensor for part in gguf_parts(path) for tensor in open_gguf(part).tensors]


@functools.lru_cache(maxsize=64)  # takes a second, for config, tensors and tokenizer each
def _open(file: FileState) -> gguf.GGUFReader:
    try:
        return _Reader(file.path)
    except _BROKEN as error:
        raise InputError(
            f"{file.path} is truncated or not a GGUF file ({type(error).__name__}: {error}); "
            "download it again."
        ) from error


def metadata(reader: gguf.GGUFReader) -> dict[str, Any]:
    """The scalar key-value pairs of the file (listing the arrays takes a second)."""
    return {
        name: field.contents()
        for name, field in reader.fields.items()
        if field.types[0] != gguf.GGUFValueType.ARRAY
    }


def config_from_gguf(path: Path) -> dict[str, Any]:
    """The equivalent of config.json from the file's metadata."""
    reader = open_gguf(path)
    values = metadata(reader)
    arch = values.get("general.architecture")
    if arch not in _ARCHITECTURES:
        allowed = ", ".join(_ARCHITECTURES)
        raise InputError(f"{path} has general.architecture {arch!r}; supported are {allowed}.")

    def get(key: str) -> Any:
        if (name := f"{arch}.{key}") not in values:
            raise InputError(f"{path} lacks the metadata key {name!r}.")
        return values[name]

    heads, hidden = get("attention.head_count"), get("embedding_length")
    tensors = _tensors(path)
    names = {tensor.name for tensor in tensors}
    tokens = reader.fields.get("tokenizer.ggml.tokens")
    config = {
        "model_type": arch,
        "vocab_size": len(tokens.data) if tokens else get("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": get("feed_forward_length"),
        "num_hidden_layers": get("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": values.get(f"{arch}.attention.head_count_kv", heads),
        "head_dim": values.get(f"{arch}.attention.key_length", hidden // heads),
        "hidden_act": "gelu_pytorch_tanh" if arch == "gemma2" else "silu",
        "max_position_embeddings": get("context_length"),
        "rms_norm_eps": _shortest(get("attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(values.get(f"{arch}.rope.freq_base", 10000.0)),
        "rope_scaling": _rope_scaling(path, tensors, values, arch),
        "tie_word_embeddings": "output.weight" not in names,
        "attention_bias": "blk.0.attn_q.bias" in names,
    }
    if arch in ("gemma2", "phi3"):
        config["sliding_window"] = get("attention.sliding_window") or None
    if arch == "gemma2":
        config |= _gemma2(values, config)
    if arch == "phi3":
        config["original_max_position_embeddings"] = values.get(
            "phi3.rope.scaling.original_context_length", config["max_position_embeddings"]
        )
        rotated = values.get("phi3.rope.dimension_count", config["head_dim"])
        config["partial_rotary_factor"] = rotated / config["head_dim"]
    for name in ("bos", "eos", "pad"):
        key = "padding" if name == "pad" else name
        config[f"{name}_token_id"] = values.get(f"tokenizer.ggml.{key}_token_id")
    # the ends of a turn and of a message, beside that of a text
    ends = [values.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    if len(ends := sorted({end for end in ends if end is not None})) > 1:
        config["eos_token_id"] = ends
    return config


def _gemma2(values: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Gemma 2's own settings; soft caps are those of all its checkpoints where the file has none.

    The scale of queries is not in the file. It is that of the released models: head_dim, but
    hidden_size / heads in the model with 46 layers (27B).
    """
    wide = config["num_hidden_layers"] == 46
    scale = config["hidden_size"] // config["num_attention_heads"] if wide else config["head_dim"]
    return {
        "query_pre_attn_scalar": scale,
        "attn_logit_softcapping": values.get("gemma2.attn_logit_softcapping", 50.0),
        "final_logit_softcapping": values.get("gemma2.final_logit_softcapping", 30.0),
    }


def _shortest(value: float) -> float:
    """The shortest decimal of a float32: GGUF returns 1e-5 as 9.99999974e-06."""
    return float(str(np.float32(value)))


def _rope_scaling(
    path: Path, tensors: Sequence[gguf.ReaderTensor], values: dict[str, Any], arch: str
) -> dict[str, Any] | None:
    factors = {t.name: np.asarray(t.data, np.float64) for t in tensors if t.name in _ROPE_TENSORS}
    if "rope_freqs.weight" in factors:
        return _llama3_scaling(path, factors["rope_freqs.weight"], values, arch)
    if factors:
        return _longrope(path, factors, values, arch)
    kind = values.get(f"{arch}.rope.scaling.type", "none")
    if kind == "none":
        return None
    scaling = {"rope_type": kind, "factor": _shortest(values[f"{arch}.rope.scaling.factor"])}
    if original := values.get(f"{arch}.rope.scaling.original_context_length"):
        scaling["original_max_position_embeddings"] = original
    return scaling


def _longrope(
    path: Path, factors: dict[str, np.ndarray], values: dict[str, Any], arch: str
) -> dict[str, Any]:
    """Phi-3's rope settings; the file holds the factors of frequencies and of attention."""
    names = {f"{kind}_factor": f"rope_factors_{kind}.weight" for kind in ("short", "long")}
    if lacking := [name for name in names.values() if name not in factors]:
        raise InputError(f"{path} lacks the tensor {lacking[0]!r}.")
    scaling: dict[str, Any] = {
        field: [_shortest(float(factor)) for factor in factors[name]]
        for field, name in names.items()
    }
    if scale := values.get(f"{arch}.rope.scaling.attn_factor"):
        scaling["attention_factor"] = float(scale)
    return {"rope_type": "longrope", **scaling}


def _llama3_scaling(
    path: Path, factors: np.ndarray, values: dict[str, Any], arch: str
) -> dict[str, Any]:
    """Llama 3's rope settings, from the frequency divisors in the file.

    All released Llama 3 checkpoints have low_freq_factor 1, high_freq_factor 4 and 8192 original
    positions; the largest divisor is the factor. Divisors that do not match these are refused.
    """
    settings = {
        "rope_type": "llama3",
        "factor": _shortest(float(factors.max())),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    theta = values.get(f"{arch}.rope.freq_base", 10000.0)
    wavelength = 2 * math.pi * theta ** (np.arange(len(factors)) / len(factors))
    smooth = np.clip((8192 / wavelength - 1.0) / (4.0 - 1.0), 0.0, 1.0)
    expected = 1.0 / ((1.0 - smooth) / settings["factor"] + smooth)
    if not np.allclose(factors, expected, rtol=1e-4):
        raise InputError(
            f"{path}: the scaling of its rotary frequencies is not Llama 3's; use the model's "
            "safetensors checkpoint, whose config.json has the settings."
        )
    return settings


def tensors_of_gguf(path: Path) -> dict[str, StoredTensor]:
    """The tensors by their Hugging Face names, dequantised when they are read."""
    config = config_from_gguf(path)
    return {
        hf_name(tensor.name, config["model_type"], path): _stored(tensor, config, path)
        for tensor in _tensors(path)
        if tensor.name not in _ROPE_TENSORS
    }


def hf_name(name: str, arch: str, path: Path) -> str:
    """The Hugging Face name of a llama.cpp tensor: blk.3.attn_q.weight and the like."""
    stem, _, kind = name.rpartition(".")
    names = _LAYER_NAMES | _OWN_NAMES.get(arch, {})
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)", stem):
        if match[2] in names:
            return f"model.layers.{match[1]}.{names[match[2]]}.{kind}"
    elif stem in _GLOBAL_NAMES:
        return f"{_GLOBAL_NAMES[stem]}.{kind}"
    raise InputError(
        f"{path} holds a tensor {name!r}, which is not known in {', '.join(_ARCHITECTURES)}."
    )


def _stored(tensor: gguf.ReaderTensor, config: dict[str, Any], path: Path) -> StoredTensor:
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    part = tensor.name.split(".")[-2]

    def read() -> np.ndarray:
        try:
            array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, *_BROKEN) as error:
            kind = tensor.tensor_type.name
            raise InputError(f"{path}: {tensor.name} of type {kind}: {error}") from error
        if FAMILIES[config["model_type"]].gguf_interleaved and part in heads:
            return _unpermute(array, heads[part])
        # llama.cpp's converter adds Gemma's 1 to the norms' weights
        return array - 1 if config["model_type"] == "gemma2" and "norm" in part else array

    return StoredTensor(tuple(int(size) for size in reversed(tensor.shape)), read)


def _unpermute(array: np.ndarray, heads: int) -> np.ndarray:
    """Reorders each head's rows from llama.cpp's layout to Hugging Face's.

    llama.cpp rotates neighbouring pairs (2i, 2i+1), Hugging Face the halves (i, i + d/2), so its
    converter interleaves the halves of llama models (but not of Qwen).
    """
    split = array.reshape(heads, -1, 2, *array.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(array.shape)
