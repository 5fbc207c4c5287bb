"""Matrices in eight bits against float64 NumPy."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxrag.engines.vllm import Vllm
from jaxrag.models import quantisation
from jaxrag.models.checkpoint import files
from jaxrag.models.decoder.checkpoint import load_decoder, save_decoder
from jaxrag.models.parameters import flatten
from jaxrag.models.quantisation import quantise
from jaxrag.models.sharding import parameter_sharding
from jaxrag.types import InputError
from tests.models.decoder.reference import CONFIGS, reference_logits
from tests.models.decoder.test_network import TOKENS, checkpoint, full_logits

RANDOM = np.random.default_rng(0)
FLOAT32 = jnp.dtype("float32")


def restored(weight: np.ndarray) -> np.ndarray:
    """The matrix that the integers stand for, in float64."""
    found = quantise(weight)
    return found.weight.astype(np.float64) * found.scale.astype(np.float64)[:, None]


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_every_entry_is_within_half_a_scale(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantisation, "_ROWS", 16)  # several blocks, the last one incomplete
    deviations = 10.0 ** RANDOM.uniform(-6, 3, (37, 1))
    weight = (RANDOM.normal(size=(37, 50)) * deviations).astype(dtype)
    weight[5] = 0
    exact, found = weight.astype(np.float64), quantise(weight)
    largest = np.abs(exact).max(axis=1)
    np.testing.assert_allclose(found.scale, np.where(largest > 0, largest / 127, 1), rtol=1e-6)
    assert np.abs(found.weight).max(axis=1).tolist() == [127 * (top > 0) for top in largest]
    bound = found.scale.astype(np.float64)[:, None] / 2
    assert (np.abs(exact - restored(weight)) <= bound * (1 + 2e-5)).all()  # w / s is float32


def test_a_row_by_hand() -> None:
    # the largest is 2.54, so the scale is 0.02: 1 is 50 scales, -0.031 is -1.55, so -2
    found = quantise(np.array([[2.54, 1.0, -0.031, 0.009], [0, 0, 0, 0]], np.float32))
    np.testing.assert_allclose(found.scale, [0.02, 1])
    assert found.weight.tolist() == [[127, 50, -2, 0], [0, 0, 0, 0]]


def test_the_least_numbers_stay_in_range() -> None:
    least = np.full((1, 3), np.finfo(np.float32).smallest_subnormal, np.float32)
    assert np.abs(quantise(least * 100).weight).max() <= 127


@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    with pytest.raises(InputError, match=r"x\.weight holds NaN or infinite numbers"):
        quantise(np.array([[1, 2], [3, number]], np.float32), "x.weight")


@pytest.mark.parametrize("name", ["llama-biases", "phi3", "gemma2"])
def test_all_families_compute_what_the_integers_stand_for(name: str, tmp_path: Path) -> None:
    """One layer each, stacked; the reference has the restored matrices in float64."""
    config = {**CONFIGS[name], "num_hidden_layers": 1}
    tensors = checkpoint(tmp_path, config)
    decoder, params = load_decoder(tmp_path, dtype=FLOAT32, stacked=True, quantization="int8")
    held = flatten(params)
    matrices = {key for key, array in tensors.items() if array.ndim == 2}
    assert {
        key.replace(".stack.", ".0.") for key, a in held.items() if a.dtype == jnp.int8
    } == matrices
    exact = {key: restored(a) if a.ndim == 2 else a for key, a in tensors.items()}
    found = full_logits(decoder, params, TOKENS)
    wanted = reference_logits(config, exact, TOKENS)
    np.testing.assert_allclose(found, wanted, atol=2e-5, rtol=0)
    whole = reference_logits(config, tensors, TOKENS)
    assert 1e-4 < np.abs(wanted - whole).max() < 0.1 * np.abs(whole).max()


def test_loading_holds_one_matrix_at_a_time_as_floating_point_numbers(tmp_path, monkeypatch):
    """Each is quantised before the next is read."""
    checkpoint(tmp_path, CONFIGS["llama"])
    events: list[str] = []
    stored, own = files.Tensors.stored, quantise

    def counted(self: files.Tensors, name: str) -> Any:
        tensor = stored(self, name)
        return tensor._replace(read=lambda: (events.append(name), tensor.read())[1])

    monkeypatch.setattr(files.Tensors, "stored", counted)
    monkeypatch.setattr(
        "jaxrag.models.decoder.checkpoint.quantise",
        lambda array, name: (events.append("quantised"), own(array, name))[1],
    )
    load_decoder(tmp_path, dtype=FLOAT32, quantization="int8")
    matrices = [
        i for i, name in enumerate(events) if name.endswith(("proj.weight", "tokens.weight"))
    ]
    assert len(matrices) == 2 * 7 + 1
    assert all(events[i + 1] == "quantised" for i in matrices)


def test_scales_are_cut_with_the_rows_of_their_matrices() -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), ("model",))
    for name, cut in {"mlp.up_proj": 20, "self_attn.o_proj": 40, "mlp.down_proj": 40}.items():
        one, name = (40,), f"model.layers.stack.{name}.scale"
        assert parameter_sharding(name, (3, *one), mesh).shard_shape((3, *one)) == (3, cut)
    for name in ("model.embed_tokens.scale", "lm_head.scale"):
        assert parameter_sharding(name, (96,), mesh).shard_shape((96,)) == (48,)


def test_quantised_parameters_are_refused_where_they_make_no_sense(tmp_path: Path) -> None:
    checkpoint(tmp_path, {**CONFIGS["llama"], "num_hidden_layers": 1})
    _, params = load_decoder(tmp_path, dtype=FLOAT32, quantization="int8")
    with pytest.raises(InputError, match="can be neither trained nor written as a checkpoint"):
        save_decoder(tmp_path / "again", CONFIGS["llama"], params)
    other: Any = "int4"
    with pytest.raises(InputError, match="quantization is 'int4'; the local engine has 'int8'"):
        load_decoder(tmp_path, dtype=FLOAT32, quantization=other)
    with pytest.raises(InputError, match="'int8' is the local engine's: name one of vLLM's"):
        Vllm(quantization="int8").load(tmp_path)
