"""A checkpoint with random weights is one that the local engine reads."""

from pathlib import Path

import pytest

from benchmarks.gpu import checkpoint
from jaxrag.types import InputError
from tests.engines.tiny_model import load_local

SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


def test_a_written_model_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = checkpoint.CONFIGS["Qwen2.5-7B"] | SMALL
    monkeypatch.setitem(checkpoint.CONFIGS, "small", small)
    path = checkpoint.write(tmp_path / "small", "small")
    model = load_local(path, dtype="float32", prefill_rows=2, rows=2)
    (answer,) = model.generate(["Capital of Peru?"], max_new_tokens=3)
    assert 1 <= len(answer.tokens) <= 3
    assert all(logprob < 0 for logprob in answer.logprobs)


def test_an_unknown_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model 'Qwen9'"):
        checkpoint.write(tmp_path, "Qwen9")
