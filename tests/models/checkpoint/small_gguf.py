"""Small GGUF files, written with the gguf package as llama.cpp's converter lays them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, WIDE, LAYERS = 2, 1, 4, 32, 64, 2
CHAT = "{% for m in messages %}<|begin|>{{ m['content'] }}<|end|>{% endfor %}"


def vocabulary() -> tuple[list[str], list[int], list[str]]:
    """Tokens, their types (1 normal, 3 control, 4 user-defined) and merges."""
    letters = sorted(ByteLevel.alphabet())
    merged = ["Ġt", "he", "Ġthe", "12", "123", "in"]
    merges = ["Ġ t", "h e", "Ġt he", "1 2", "12 3", "i n"]
    special = ["<|begin|>", "<|end|>", "<tool>"]
    types = [1] * len(letters + merged) + [3, 3, 4]
    return letters + merged + special, types, merges


def shapes() -> dict[str, tuple[int, ...]]:
    """Shape [out, in] of each tensor under llama.cpp's name."""
    found = {"token_embd.weight": (len(vocabulary()[0]), HIDDEN), "output_norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        found |= {
            f"blk.{i}.attn_norm.weight": (HIDDEN,),
            f"blk.{i}.attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"blk.{i}.attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"blk.{i}.ffn_norm.weight": (HIDDEN,),
            f"blk.{i}.ffn_gate.weight": (WIDE, HIDDEN),
            f"blk.{i}.ffn_up.weight": (WIDE, HIDDEN),
            f"blk.{i}.ffn_down.weight": (HIDDEN, WIDE),
        }
    return found


def random_tensors(*names: str) -> dict[str, np.ndarray]:
    """Values for the usual tensors, and for vectors of a head's length under ``names``."""
    random = np.random.default_rng(0)
    wanted = shapes() | dict.fromkeys(names, (HEAD_DIM,))
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in wanted.items()}


def write(
    path: Path,
    tensors: dict[str, np.ndarray],
    *,
    arch: str = "llama",
    pre: str = "gpt-2",
    quantize: gguf.GGMLQuantizationType | None = None,
    **extra: Any,
) -> Path:
    """Writes a file; ``extra`` are writer methods and their arguments."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    tokens, types, merges = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|begin|>"))
    writer.add_eos_token_id(extra.pop("add_eos_token_id", tokens.index("<|end|>")))
    writer.add_chat_template(CHAT)
    for method, argument in extra.items():
        getattr(writer, method)(*argument if isinstance(argument, tuple) else (argument,))
    for name, array in tensors.items():
        if quantize is not None and array.ndim == 2 and array.shape[1] % 32 == 0:
            data = gguf.quants.quantize(array, quantize)
            writer.add_tensor(name, data, raw_dtype=quantize)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
