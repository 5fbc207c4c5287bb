"""Checkpoints that may be anyone's: each is one error, before anything is made of it."""

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxrag.engines.prompts import end_tokens
from jaxrag.models.checkpoint.config_values import check_sizes
from jaxrag.models.checkpoint.files import read_config, read_tensors
from jaxrag.models.checkpoint.gguf import config_from_gguf, listed
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError
from tests.engines.tiny_model import TEMPLATE, write_tiny_model
from tests.models.decoder.reference import CONFIGS

U32, F32, STRING, ARRAY = 4, 6, 8, 9
GOOD: dict[str, tuple[int, Any]] = {
    "general.architecture": (STRING, "llama"),
    "llama.attention.head_count": (U32, 2),
    "llama.embedding_length": (U32, 16),
    "llama.feed_forward_length": (U32, 32),
    "llama.block_count": (U32, 1),
    "llama.context_length": (U32, 512),
    "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
    "tokenizer.ggml.model": (STRING, "gpt2"),
    "tokenizer.ggml.tokens": (ARRAY, (STRING, ["a", "b"], 2)),
    "tokenizer.ggml.token_type": (ARRAY, (U32, [1, 1], 2)),
    "tokenizer.ggml.merges": (ARRAY, (STRING, [], 0)),
}


def packed(kind: int, value: Any) -> bytes:
    if kind == ARRAY:
        inner, items, count = value
        return struct.pack("<IQ", inner, count) + b"".join(packed(inner, item) for item in items)
    if kind == STRING:
        data = value if isinstance(value, bytes) else value.encode()
        return struct.pack("<Q", len(data)) + data
    return struct.pack({U32: "<I", F32: "<f"}[kind], value)


def gguf_file(path: Path, **changes: tuple[int, Any]) -> Path:
    values = GOOD | {name.replace("__", "."): value for name, value in changes.items()}
    body = b"".join(
        packed(STRING, name) + struct.pack("<I", kind) + packed(kind, value)
        for name, (kind, value) in values.items()
    )
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + body + bytes(64))
    return path


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("x", (ARRAY, (U32, [1], 1 << 60)), "1,152,921,504,606,846,976 values in a file with"),
        ("tokenizer__ggml__tokens", (ARRAY, (STRING, ["a"], 1 << 60)), "values in a file with"),
        ("x", (ARRAY, (ARRAY, [(U32, [1], 1)], 1)), "an array of ARRAY is not supported"),
        ("tokenizer__ggml__tokens", (ARRAY, (STRING, [b"\xff", "b"], 2)), "tokens is not UTF-8"),
        ("tokenizer__ggml__tokens", (ARRAY, (U32, [1, 2], 2)), "tokens must be an array of str"),
        ("tokenizer__ggml__token_type", (ARRAY, (F32, [1.0, 1.0], 2)), "an array of int"),
        ("tokenizer__ggml__eos_token_id", (STRING, "</s>"), "eos_token_id is '</s>'"),
        ("tokenizer__chat_template", (U32, 1), "chat_template is 1; it must be a text"),
        ("llama__attention__head_count", (U32, 0), r"llama\.attention\.head_count is 0"),
        ("llama__attention__head_count_kv", (U32, 0), "head_count_kv is 0"),
        ("llama__attention__layer_norm_rms_epsilon", (STRING, "small"), "epsilon is 'small'"),
        ("llama__block_count", (U32, 10**9), "block_count is 1000000000; .* to 256"),
        ("llama__rope__scaling__type", (STRING, "linear"), "scaling.factor is None"),
    ],
)
def test_gguf(tmp_path: Path, name: str, value: tuple[int, Any], said: str) -> None:
    path = gguf_file(tmp_path / "m.gguf", **{name: value})
    with pytest.raises(InputError, match=said):
        config_from_gguf(path)
        load_tokenizer(path)


@pytest.mark.parametrize(("at", "what"), [(8, "tensors"), (16, "metadata keys")])
def test_numbers_of_entries(tmp_path: Path, at: int, what: str) -> None:
    path = gguf_file(tmp_path / "m.gguf")
    data = bytearray(path.read_bytes())
    data[at : at + 8] = struct.pack("<Q", 1 << 60)
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"1,152,921,504,606,846,976 {what}, of at most 16,384"):
        config_from_gguf(path)


def test_number_of_control_tokens(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "tokenizer__ggml__tokens": (ARRAY, (STRING, [f"t{i}" for i in range(20_000)], 20_000)),
        "tokenizer__ggml__token_type": (ARRAY, (U32, [3] * 20_000, 20_000)),
    }
    with pytest.raises(InputError, match="has 20,000 control tokens, of at most 16,384"):
        load_tokenizer(gguf_file(tmp_path / "m.gguf", **values))


def test_a_million_texts_are_read_in_seconds(tmp_path: Path) -> None:
    """A reader that makes arrays for each takes a minute, and 600 MB."""
    texts = [f"t{i}" for i in range(1_000_000)]
    path = gguf_file(tmp_path / "m.gguf", tokenizer__ggml__tokens=(ARRAY, (STRING, texts, 10**6)))
    began = time.process_time()
    assert listed(path, "tokenizer.ggml.tokens", str) == texts
    assert time.process_time() - began < 5


def test_the_files_above_are_good_but_for_one_value(tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "m.gguf")
    assert config_from_gguf(path)["vocab_size"] == 2
    with pytest.raises(InputError, match="has 0 tensors, and its config 1 layers"):
        read_tensors(path, layers=1)


HOSTILE = (10**9, 10**12, 10**5, 0, -1, True, "two", 1.5, [1], {"a": 1}, 1e300, None)


@pytest.mark.parametrize("kind", CONFIGS)
def test_each_value_of_a_config_is_read_or_one_error(kind: str) -> None:
    config = CONFIGS[kind] | {
        "rope_scaling": None,
        "layer_types": None,
        "quantization_config": None,
    }
    refused = 0
    for name in config:
        for value in HOSTILE:
            try:
                made = read_decoder_config({**config, name: value}, source="here")
            except InputError as error:
                refused += 1
                assert "here: " in str(error)
            else:
                assert made.num_hidden_layers <= 256 and made.vocab_size < 2**31
                assert made.head_dim <= 8192
                assert type(made.rms_norm_eps) is float
    assert refused > 4 * len(config)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num_labels": 10**9}, "num_labels is 1e[+]09"),
        ({"text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers is 1e[+]09"),
        ({"rope_scaling": {"factor": [float("inf")]}}, "factor is inf"),
    ],
)
def test_sizes_of_a_config(values: dict[str, Any], said: str) -> None:
    check_sizes({"vocab_size": 150_000, "eos_token_id": [1, 2], "rope_theta": 1e6}, "here")
    with pytest.raises(InputError, match=said):
        check_sizes(values, "here")


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": np.zeros(2, np.int8)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"holds a as .*: quantised weights are not supported"):
        read_tensors(tmp_path)


def test_sizes_of_files(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match=r"config\.json has 1,099,511,627,776 bytes; at most 16,7"):
        read_config(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    with pytest.raises(InputError, match="a header of 1,152,921,504,606,846,976 bytes"):
        read_tensors(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, lambda file: file.symlink_to("/dev/zero")])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("config.json", read_config),
        ("model.safetensors", read_tensors),
        ("model.safetensors.index.json", read_tensors),
        ("tokenizer.json", load_tokenizer),
        ("chat_template.jinja", load_tokenizer),
        ("special_tokens_map.json", load_tokenizer),
    ],
)
def test_pipes_and_devices(tmp_path: Path, name: str, read: Any, make: Any) -> None:
    write_tiny_model(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    if name.endswith("index.json"):
        (tmp_path / "model.safetensors").unlink()
    make(tmp_path / name)
    with pytest.raises(InputError, match=rf"{name} is a directory, a pipe or a device"):
        read(tmp_path)


def test_the_end_of_a_turn_in_the_default_of_named_templates(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    tokenizer = load_tokenizer(tmp_path)
    tokenizer.chat_template = {"default": TEMPLATE.replace("<|im_end|>", "<|end|>")}
    assert end_tokens(tmp_path, tokenizer) == (257, 258)


@pytest.mark.parametrize("ids", [[[257]], {"a": 1}, True, 1.5])
def test_end_tokens(tmp_path: Path, ids: Any) -> None:
    write_tiny_model(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert end_tokens(tmp_path, tokenizer) == (257, 258)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    with pytest.raises(InputError, match=r"eos_token_id is .*; it must be a token's id or text"):
        end_tokens(tmp_path, tokenizer)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_hundred_thousand_added_tokens(tmp_path: Path, name: str) -> None:
    write_tiny_model(tmp_path)
    file = tmp_path / name
    found = json.loads(file.read_text())
    token = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    added = [{"id": 1000 + i, "content": f"<t{i}>"} | token for i in range(100_000)]
    if name == "tokenizer.json":
        found["added_tokens"] += added
    else:
        found["added_tokens_decoder"] = {str(one.pop("id")): one for one in added}
    file.write_text(json.dumps(found))
    with pytest.raises(InputError, match=r"tokenizer.* has 100,\d+ added tokens, of at most"):
        load_tokenizer(tmp_path)


def test_a_regular_expression_that_does_not_end(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    file = tmp_path / "tokenizer.json"
    backend = json.loads(file.read_text())
    split = {
        "type": "Split",
        "pattern": {"Regex": r"(\w+\s?)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    backend["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [split, backend["pre_tokenizer"]],
    }
    file.write_text(json.dumps(backend))
    with pytest.raises(
        InputError, match=r"tokenizer\.json cannot be used: it (takes over 4 s|fails)"
    ):
        load_tokenizer(tmp_path)
