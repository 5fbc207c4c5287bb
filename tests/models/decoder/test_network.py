"""The decoder against its NumPy reference, and what its cache and padding must not change."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.cache import empty_cache
from jaxrag.models.checkpoint.files import write_checkpoint
from jaxrag.models.decoder.checkpoint import load_decoder, parameter_shapes
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.decoding import extend
from jaxrag.models.decoder.network import Decoder
from jaxrag.models.parameters import flatten
from jaxrag.types import InputError
from tests.models.decoder.reference import BASE, CONFIGS, LLAMA3, random_tensors, reference_logits

TOKENS = np.array([5, 17, 3, 96, 41, 41, 8, 60, 2, 33, 7], np.int32)


def checkpoint(directory: Path, config: dict[str, Any], **kwargs: Any) -> dict[str, np.ndarray]:
    decoder = Decoder(read_decoder_config(config, source="test"))
    tensors = random_tensors(parameter_shapes(decoder))
    write_checkpoint(directory, config, tensors, **kwargs)
    return tensors


def load(directory: Path, dtype: Any = jnp.float32) -> tuple[Decoder, dict[str, Any]]:
    return load_decoder(directory, dtype=jnp.dtype(dtype))


def full_logits(decoder: Decoder, params: Any, tokens: np.ndarray, offset: int = 0) -> np.ndarray:
    """Logits [t, v] of one sequence in one call."""
    t = len(tokens)
    cache = empty_cache(decoder.config, 1, t, decoder.dtype)

    @jax.jit
    def run(params: Any) -> jax.Array:
        where, positions = np.tril(np.ones((1, t, t), bool)), offset + np.arange(t)[None]
        hidden, _ = decoder.apply(
            {"params": params}, tokens[None], positions, where=where, cache=cache
        )
        return decoder.apply({"params": params}, hidden[0], method="logits")

    return np.asarray(run(params))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("offset", [0, 90])
def test_logits_equal_the_numpy_reference(name: str, offset: int, tmp_path: Path) -> None:
    tensors = checkpoint(tmp_path, CONFIGS[name], shards=2)
    decoder, params = load(tmp_path)
    found = full_logits(decoder, params, TOKENS, offset)
    wanted = reference_logits(CONFIGS[name], tensors, TOKENS, offset)
    assert np.abs(wanted).max() > 2  # or the tolerance would mean little
    np.testing.assert_allclose(found, wanted, atol=2e-5, rtol=0)


@pytest.mark.parametrize("scaling", [None, LLAMA3])
def test_rope_parameters_equal_rope_scaling(scaling: Any) -> None:
    old = {**BASE, "model_type": "llama", "rope_scaling": scaling}
    new = {key: value for key, value in BASE.items() if key != "rope_theta"}
    new |= {"model_type": "llama", "rope_parameters": {**(scaling or {}), "rope_theta": 777.0}}
    assert read_decoder_config(old, source="a") == read_decoder_config(new, source="b")


def test_one_token_at_a_time_equals_all_at_once(tmp_path: Path) -> None:
    checkpoint(tmp_path, CONFIGS["qwen3"])
    decoder, params = load(tmp_path)
    cache, steps = empty_cache(decoder.config, 1, 16, jnp.float32), []
    for i, token in enumerate(TOKENS):
        hidden, cache = extend(decoder, params, cache, np.full((1, 1), token), np.int32(i))
        steps.append(decoder.apply({"params": params}, hidden[:, 0], method="logits")[0])
    np.testing.assert_allclose(steps, full_logits(decoder, params, TOKENS), atol=2e-5, rtol=0)


def test_padding_on_the_left_changes_nothing(tmp_path: Path) -> None:
    checkpoint(tmp_path, CONFIGS["qwen2"])
    decoder, params = load(tmp_path)
    pad, t = 4, len(TOKENS)
    tokens = np.concatenate([np.full(pad, 50), TOKENS])[None].astype(np.int32)
    where = np.tril(np.ones((1, pad + t, pad + t), bool))
    where[:, :, :pad] = False
    positions = np.maximum(np.arange(pad + t) - pad, 0)[None]
    cache = empty_cache(decoder.config, 1, pad + t, jnp.float32)

    @jax.jit
    def run(params: Any) -> Any:
        variables = {"params": params}
        hidden, _ = decoder.apply(variables, tokens, positions, where=where, cache=cache)
        return hidden, decoder.apply(variables, hidden[0, pad:], method="logits")

    hidden, found = run(params)
    assert np.isfinite(hidden).all()  # the padding itself, which looks at nothing
    np.testing.assert_allclose(found, full_logits(decoder, params, TOKENS), atol=2e-5, rtol=0)


def test_jit_changes_nothing(tmp_path: Path) -> None:
    checkpoint(tmp_path, {**CONFIGS["llama"], "num_hidden_layers": 1})
    decoder, params = load(tmp_path)
    cache = empty_cache(decoder.config, 2, 16, jnp.float32)
    tokens = np.stack([TOKENS, TOKENS[::-1]])
    with jax.disable_jit():
        plain, _ = extend(decoder, params, cache, tokens, np.int32(0))
    jitted, _ = extend(decoder, params, cache, tokens, np.int32(0))
    np.testing.assert_allclose(jitted, plain, atol=2e-5, rtol=0)


def test_bfloat16_is_near_float32(tmp_path: Path) -> None:
    checkpoint(tmp_path, CONFIGS["llama"])
    decoder, params = load(tmp_path, jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.bfloat16)}
    found = full_logits(decoder, params, TOKENS)
    wanted = full_logits(*load(tmp_path), TOKENS)
    assert found.dtype == np.float32
    assert 0 < np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


def test_tied_checkpoints_may_hold_the_copy(tmp_path: Path) -> None:
    tensors = checkpoint(tmp_path, CONFIGS["qwen3"])
    copy = {"lm_head.weight": tensors["model.embed_tokens.weight"]}
    write_checkpoint(tmp_path, CONFIGS["qwen3"], {**tensors, **copy})
    _, params = load(tmp_path)
    read = flatten(params)
    assert read.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(read[name], array)


def test_a_mismatched_checkpoint_is_refused_with_all_mismatches(tmp_path: Path) -> None:
    tensors = checkpoint(tmp_path, CONFIGS["qwen2"])
    tensors["model.norm.weight"] = np.zeros(23, np.float32)
    tensors["model.layers.7.mlp.up_proj.weight"] = tensors.pop("model.layers.1.mlp.up_proj.weight")
    write_checkpoint(tmp_path, CONFIGS["qwen2"], tensors)
    with pytest.raises(InputError) as caught:
        load(tmp_path)
    for part in ("misshapen: model.norm.weight", "missing: model.layers.1", "surplus: model.laye"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "model_type is 'mamba'"),
        ({"hidden_size": None}, "hidden_size is None"),
        ({"num_key_value_heads": 4}, "not a multiple of num_key_value_heads 4"),
        ({"head_dim": 5}, "head_dim is 5"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"use_sliding_window": True, "sliding_window": 64}, "sliding-window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2}}, "rope_type is 'longrope'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "lacks the setting 'factor'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ],
)
def test_unsupported_configs_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match="here: .*" + message):
        read_decoder_config({**CONFIGS["qwen2"], **change}, source="here")


def test_a_disabled_sliding_window_is_accepted() -> None:
    config = {**CONFIGS["qwen2"], "use_sliding_window": False, "sliding_window": 64}
    assert read_decoder_config(config, source="x") == read_decoder_config(
        CONFIGS["qwen2"], source="x"
    )
