"""Reads GGUF files, written by llama.cpp, as Hugging Face checkpoints.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import functools
import math
import re
import reprlib
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from jaxrag.core.file_states import FileState
from jaxrag.models.checkpoint.config_values import HEAD, LAYERS, WIDTH, integer, number
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
    """Reads the mapped file as a plain array, whose small slices are faster than a memmap's."""

    @property
    def data(self) -> np.ndarray:
        """The file's bytes, still mapped."""
        return self._bytes

    @data.setter
    def data(self, mapped: np.memmap) -> None:
        self._bytes = np.asarray(mapped)
        self._texts = 0  # read so far

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[np.ndarray], list[int], list[gguf.GGUFValueType]]:
        """As the package's, but an array is one part, whose lengths are checked before."""
        if raw_type != _ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        kind, start = gguf.GGUFValueType(int(self._get(orig_offs, np.uint32)[0])), orig_offs + 12
        count, left = int(self._get(orig_offs + 4, np.uint64)[0]), len(self._bytes) - start
        number = self.gguf_scalar_to_np.get(kind)
        if number is None and kind != gguf.GGUFValueType.STRING:
            raise ValueError(f"an array of {kind.name} is not supported")
        if count * (np.dtype(number).itemsize if number else 8) > left:
            raise ValueError(f"an array of {count:,} values in a file with {left:,} bytes left")
        if number:
            values = self._get(start, number, count)
            return 12 + values.nbytes, [values], [0], [gguf.GGUFValueType.ARRAY, kind]
        self._texts += count
        if self._texts > _TEXTS:
            raise ValueError(f"over {_TEXTS:,} texts")
        data, end, length = self._bytes.data, start, self.length
        for _ in range(count):
            end += 8 + length(data, end)[0]
        if end > len(data):
            raise ValueError("a text of more bytes than are left")
        return end - orig_offs, [self._bytes[start:end]], [0], [gguf.GGUFValueType.ARRAY, kind]

    @property
    def length(self) -> Callable[[memoryview, int], tuple[int]]:
        """Reads the length of a text, which stands before it."""
        return struct.Struct(">Q" if self.byte_order == "S" else "<Q").unpack_from  # type: ignore[return-value]

    def _build_fields(self, offs: int, count: int) -> int:
        _check_number(count, "metadata keys")
        return super()._build_fields(offs, count)

    def _build_tensor_info(self, offs: int, count: int) -> tuple[int, list[gguf.ReaderField]]:
        _check_number(count, "tensors")
        return super()._build_tensor_info(offs, count)


def _check_number(count: int, kind: str) -> None:
    if count > _ENTRIES:
        raise ValueError(f"{count:,} {kind}, of at most {_ENTRIES:,}")


def open_gguf(path: Path) -> _Reader:
    """Opens a GGUF file; InputError if it is truncated or not GGUF."""
    state = FileState.of(path)
    return _open(state) if state.settled else _open.__wrapped__(state)


_ARRAY, _TOKENS = gguf.GGUFValueType.ARRAY, "tokenizer.ggml.tokens"
_TEXTS = 1 << 20  # of a file; the largest vocabularies have 262,144 tokens and 514,906 merges
_ENTRIES = 1 << 14  # of its metadata and its tensors each; published models have up to 3,000
_KINDS = {"_token_id": int, "chat_template": str, ".architecture": str, ".model": str, ".pre": str}
_KINDS |= {".scaling.type": str}
"""Types of values by the ends of their keys; sizes and the like are checked where they are used."""

_TURN_ENDS = {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|return|>"}
_TURN_ENDS |= {"<|end_of_text|>"}  # of Llama 3
"""Names of tokens that end a turn, as in llama.cpp, also where no key names them."""

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")  # as llama.cpp names the parts of a split file


def gguf_parts(path: Path) -> list[Path]:
    """The files of a checkpoint: the file itself, or all parts of one that was split.

    InputError if ``path`` is not the first part, or a part is missing.
    """
    if not (name := _PART.search(path.name)):
        return [path]
    stem, count = path.name[: name.start()], int(name[2])
    parts = [path.with_name(f"{stem}-{i:05d}-of-{count:05d}.gguf") for i in range(1, count + 1)]
    if parts[:1] != [path]:
        raise InputError(f"{path} is a part of a split file: name its first part, {parts[0].name}.")
    if missing := [part.name for part in parts if not part.is_file()]:
        raise InputError(
            f"{path} is the first of {count} parts; beside it, {missing[0]} is missing."
        )
    return parts


def _check_whole(path: Path, values: dict[str, Any]) -> None:
    """InputError for a renamed part of a split file, whose others cannot be found."""
    if (count := values.get("split.count", 1)) not in (0, 1) and not _PART.search(path.name):
        raise InputError(
            f"{path} is a part of a file that was split into {count}: give its parts their names, "
            "such as NAME-00001-of-00002.gguf, and name the first."
        )


def _tensors(path: Path) -> list[gguf.ReaderTensor]:
    return [tensor for part in gguf_parts(path) for tensor in open_gguf(part).tensors]


@functools.lru_cache(maxsize=64)  # takes a second, for config, tensors and tokenizer each
def _open(file: FileState) -> _Reader:
    try:
        return _Reader(file.path)
    except _BROKEN as error:
        raise InputError(
            f"{file.path} is truncated or not a GGUF file ({type(error).__name__}: {error}); "
            "download it again."
        ) from error


def metadata(path: Path) -> dict[str, Any]:
    """The key-value pairs of a file but its arrays; InputError for a value of another type."""
    values = {
        name: _contents(path, name, field)
        for name, field in open_gguf(path).fields.items()
        if field.types[0] != _ARRAY
    }
    for name, value in values.items():
        for end, kind in _KINDS.items():
            if name.endswith(end) and (type(value) is not kind or (kind is int and value < 0)):
                raise InputError(
                    f"{path}: {name} is {reprlib.repr(value)}; it must be "
                    f"{'a token id' if kind is int else 'a text'}."
                )
    _check_whole(path, values)
    return values


def listed(path: Path, name: str, kind: type[str] | type[int]) -> list[Any]:
    """An array of texts or integers; InputError if a file has none of that name and kind."""
    if (field := open_gguf(path).fields.get(name)) is None:
        raise InputError(f"{path} lacks the metadata key {name!r}.")
    numbers = {*gguf.GGUFReader.gguf_scalar_to_np} - {gguf.GGUFValueType.FLOAT32}
    kinds = {gguf.GGUFValueType.STRING} if kind is str else numbers
    if field.types[0] != _ARRAY or not {*field.types[1:]} <= kinds:
        raise InputError(f"{path}: {name} must be an array of {kind.__name__}.")
    if kind is int and field.parts[-1].size > _TEXTS:
        raise InputError(f"{path}: {name} has {field.parts[-1].size:,} values.")
    return _contents(path, name, field)


def _contents(path: Path, name: str, field: gguf.ReaderField) -> Any:
    try:
        if field.types != [_ARRAY, gguf.GGUFValueType.STRING]:
            return field.contents()
        data, texts, at, length = field.parts[-1].data, [], 0, open_gguf(path).length
        while at < len(data):
            start = at + 8
            at = start + length(data, at)[0]
            texts.append(str(data[start:at], "utf-8"))
        return texts
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {name} is not UTF-8 ({error.reason}).") from error


def config_from_gguf(path: Path) -> dict[str, Any]:
    """The equivalent of config.json from the file's metadata."""
    values = metadata(path)
    arch = values.get("general.architecture")
    if arch not in _ARCHITECTURES:
        allowed = ", ".join(_ARCHITECTURES)
        raise InputError(f"{path} has general.architecture {arch!r}; supported are {allowed}.")

    def count(key: str, default: int | None = None, **limits: int) -> int:
        if (name := f"{arch}.{key}") not in values and default is None:
            raise InputError(f"{path} lacks the metadata key {name!r}.")
        return integer(values, name, path, default, **limits)

    hidden = count("embedding_length", most=WIDTH)
    heads = count("attention.head_count", most=hidden)
    tensors = _tensors(path)
    names = {tensor.name for tensor in tensors}
    tokens = listed(path, _TOKENS, str) if _TOKENS in open_gguf(path).fields else []
    config = {
        "model_type": arch,
        "vocab_size": len(tokens) or count("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": count("feed_forward_length"),
        "num_hidden_layers": count("block_count", most=LAYERS),
        "num_attention_heads": heads,
        "num_key_value_heads": count("attention.head_count_kv", heads),
        "head_dim": count("attention.key_length", hidden // heads, most=HEAD),
        "hidden_act": "gelu_pytorch_tanh" if arch == "gemma2" else "silu",
        "max_position_embeddings": count("context_length"),
        "rms_norm_eps": _shortest(number(values, f"{arch}.attention.layer_norm_rms_epsilon", path)),
        "rope_theta": _shortest(number(values, f"{arch}.rope.freq_base", path, 10000.0)),
        "rope_scaling": _rope_scaling(path, tensors, values, arch),
        "tie_word_embeddings": "output.weight" not in names,
        "attention_bias": "blk.0.attn_q.bias" in names,
    }
    if arch in ("gemma2", "phi3"):
        config["sliding_window"] = count("attention.sliding_window", least=0) or None
    if arch == "gemma2":
        config |= _gemma2(path, values, config)
    if arch == "phi3":
        config["original_max_position_embeddings"] = count(
            "rope.scaling.original_context_length", config["max_position_embeddings"]
        )
        rotated = count("rope.dimension_count", config["head_dim"])
        config["partial_rotary_factor"] = rotated / config["head_dim"]
    for name in ("bos", "eos", "pad"):
        key = "padding" if name == "pad" else name
        config[f"{name}_token_id"] = values.get(f"tokenizer.ggml.{key}_token_id")
    # the ends of a turn and of a message, beside that of a text
    ends = [values.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    ends += [i for i, name in enumerate(tokens) if name in _TURN_ENDS]
    if len(ends := sorted({end for end in ends if end is not None})) > 1:
        config["eos_token_id"] = ends
    return config


def _gemma2(path: Path, values: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Gemma 2's own settings; soft caps are those of all its checkpoints where the file has none.

    The scale of queries is not in the file: head_dim, but hidden_size / heads in the 27B (46
    layers).
    """
    wide = config["num_hidden_layers"] == 46
    scale = config["hidden_size"] // config["num_attention_heads"] if wide else config["head_dim"]
    return {
        "query_pre_attn_scalar": scale,
        "attn_logit_softcapping": number(values, "gemma2.attn_logit_softcapping", path, 50.0),
        "final_logit_softcapping": number(values, "gemma2.final_logit_softcapping", path, 30.0),
    }


def _shortest(value: float) -> float:
    """The shortest decimal of a float32: GGUF returns 1e-5 as 9.99999974e-06."""
    return float(str(np.float32(value)))


def _rope_scaling(
    path: Path, tensors: Sequence[gguf.ReaderTensor], values: dict[str, Any], arch: str
) -> dict[str, Any] | None:
    rope_tensors = [t for t in tensors if t.name in _ROPE_TENSORS]
    for tensor in rope_tensors:
        if tensor.data.ndim != 1 or not 0 < tensor.data.size <= WIDTH:
            raise InputError(f"{path}: {tensor.name} has the shape {tensor.data.shape}.")
    factors = {t.name: np.asarray(t.data, np.float64) for t in rope_tensors}
    if "rope_freqs.weight" in factors:
        return _llama3_scaling(path, factors["rope_freqs.weight"], values, arch)
    if factors:
        return _longrope(path, factors, values, arch)
    kind = values.get(f"{arch}.rope.scaling.type", "none")
    if kind == "none":
        return None
    scaling = {
        "rope_type": kind,
        "factor": _shortest(number(values, f"{arch}.rope.scaling.factor", path)),
    }
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

    All released checkpoints have the settings below; the largest divisor is the factor. InputError
    for divisors that do not match these.
    """
    settings = {
        "rope_type": "llama3",
        "factor": _shortest(float(factors.max())),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    theta = number(values, f"{arch}.rope.freq_base", path, 10000.0)
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
    part = tensor.name.split(".")[-2]  # hf_name has read it

    def read() -> np.ndarray:
        try:
            array = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            if FAMILIES[config["model_type"]].gguf_interleaved and part in heads:
                return _unpermute(array, heads[part])
        except (NotImplementedError, *_BROKEN) as error:
            kind = tensor.tensor_type.name
            raise InputError(f"{path}: {tensor.name} of type {kind}: {error}") from error
        # llama.cpp's converter adds Gemma's 1 to the norms' weights
        return array - 1 if config["model_type"] == "gemma2" and "norm" in part else array

    return StoredTensor(tuple(int(size) for size in reversed(tensor.shape)), read)


def _unpermute(array: np.ndarray, heads: int) -> np.ndarray:
    """Reorders each head's rows from llama.cpp's layout to Hugging Face's.

    llama.cpp rotates neighbouring pairs (2i, 2i+1), Hugging Face the halves (i, i + d/2).
    """
    split = array.reshape(heads, -1, 2, *array.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(array.shape)
