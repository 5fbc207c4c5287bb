"""Settings of the local engine reach it."""

import dataclasses
import json
from pathlib import Path
from typing import NamedTuple

import jax
import pytest

from jaxrag.engines.local import engine
from jaxrag.engines.local.engine import Local
from jaxrag.engines.local.prefill import Sizes
from jaxrag.models.device_memory import free_memory
from jaxrag.runs.placement import as_vllm
from jaxrag.types import InputError
from tests.engines.tiny_model import load_local, write_tiny_model


@pytest.mark.usefixtures("unprobed")
def test_local_settings(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "model")
    settings = Local(
        str(tmp_path / "model"),
        max_length=40,
        rows=16,
        prefill_rows=4,
        chunk=64,
        cache_gib=0.5,
        template_options='{"short": true}',
    )
    model = settings.load(tmp_path)
    assert getattr(model, "max_length", None) == 40
    assert '"template_options":{"short":true}' in model.identity
    assert '"sizes":[4,16,64,536870912]' in model.identity


# Qwen2.5-7B in bfloat16: 2 x 28 layers x 4 heads x 128 features x 2 bytes = 57,344 bytes a slot,
# 56 MiB a row of 1,024
@pytest.mark.parametrize(
    ("free", "sizes"),
    [
        (int(1.5 * 2**30), Sizes(8, 8, 128, 1 << 29)),  # a v5e chip: 0.5 GiB hold 9 rows
        (14 << 30, Sizes(16, 64, 128, 1 << 32)),  # 4.7 GiB: of 4 are 73 rows
        (60 << 30, Sizes(16, 256, 128, 1 << 34)),  # 16 GiB hold 292
        (400 << 30, Sizes(16, 256, 128, 1 << 37)),
        (0, Sizes(1, 1, 128, 1 << 20)),  # one row is always tried
    ],
)
def test_sizes_follow_the_free_memory(free: int, sizes: Sizes) -> None:
    assert Sizes.fitting(free, 57_344) == sizes


class Chip(NamedTuple):
    """A device with these statistics."""

    stats: dict[str, int] | None

    def memory_stats(self) -> dict[str, int] | None:
        return self.stats


def test_free_memory_is_known_where_every_device_tells() -> None:
    told = Chip({"bytes_limit": 100, "bytes_in_use": 30})
    assert free_memory([told, Chip({"bytes_limit": 90})]) == [70, 90]
    assert free_memory([told, Chip(None)]) is None
    assert free_memory(jax.local_devices()) is None  # CPUs


@pytest.mark.usefixtures("unprobed")
def test_the_engine_is_sized_by_the_free_memory(tmp_path, monkeypatch) -> None:
    write_tiny_model(tmp_path / "model")
    monkeypatch.setattr(engine, "free_memory", lambda devices: [3 << 22 for _ in devices])
    found = json.loads(Local(str(tmp_path / "model")).load(tmp_path).identity)
    # a third of 12 MiB; the tiny model's rows of 1,024 slots take 2 x layers x heads x features x 4
    assert found["sizes"][3] == 1 << 22
    assert found["sizes"][:3] != [8, 32, 32]
    fixed = Local(str(tmp_path / "model"), rows=24, cache_gib=0.5).load(tmp_path)
    assert json.loads(fixed.identity)["sizes"][1::2] == [24, 1 << 29]


def test_local_over_several_devices(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "model")
    alone = Local(str(tmp_path / "model"))
    spread = dataclasses.replace(alone, data_parallel=2, tensor_parallel=2).load(tmp_path)
    assert '"mesh":{"data":2,"model":2}' in spread.identity
    prompts = ["the cat", "a river of words"]
    found, wanted = (
        model.generate(prompts, max_new_tokens=4, temperature=0.0)
        for model in (spread, alone.load(tmp_path))
    )
    assert [one.tokens for one in found] == [one.tokens for one in wanted]
    with pytest.raises(InputError, match="is 16 devices; there are 8"):
        dataclasses.replace(alone, data_parallel=16).load(tmp_path)
    with pytest.raises(InputError, match="tensor_parallel 0"):
        dataclasses.replace(alone, tensor_parallel=0).load(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]", "enable_thinking=False"])
def test_invalid_template_options_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="it must be a JSON object"):
        Local(template_options=text).load(tmp_path)


@pytest.mark.usefixtures("unprobed")
def test_quantised_matrices_are_another_identity(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "model")
    whole = Local(str(tmp_path / "model"))
    before, after = (
        json.loads(one.load(tmp_path).identity)
        for one in (whole, dataclasses.replace(whole, quantization="int8"))
    )
    assert "quantization" not in before  # as in stores from before the setting
    assert after == {**before, "quantization": "int8"}
    with pytest.raises(InputError, match="set it to '' to run with vLLM"):
        as_vllm(dataclasses.replace(whole, quantization="int8"))


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.usefixtures("unprobed")
def test_free_memory_is_part_of_the_identity_on_cpus_only(backend, tmp_path, monkeypatch) -> None:
    write_tiny_model(tmp_path / "model")
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    found = []
    for free in (3 << 22, 3 << 24):
        monkeypatch.setattr(engine, "free_memory", lambda devices, free=free: [free] * len(devices))
        model = load_local(tmp_path / "model", dtype="float32")
        found.append((model.identity, model._sizes))
    assert found[0][1] != found[1][1]
    assert (found[0][0] != found[1][0]) == (backend == "cpu")
    half = load_local(tmp_path / "model", dtype="bfloat16")
    assert half.identity not in [identity for identity, _ in found]
