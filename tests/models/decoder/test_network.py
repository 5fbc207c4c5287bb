"""The decoder against its NumPy reference, and what its cache and padding must not change."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrag.models.cache import empty_cache
from jaxrag.models.checkpoint.files import read_tensors
from jaxrag.models.decoder.checkpoint import load_decoder, parameter_shapes, save_decoder
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.decoding import extend
from jaxrag.models.decoder.network import (
    Decoder,
    DecoderLayer,
    attend_to_used,
    attention_weights,
    recency,
    within,
)
from jaxrag.models.layers import inputs_first
from jaxrag.models.parameters import flatten
from jaxrag.models.rotary import rotation_of
from jaxrag.models.sharding import parameter_sharding
from jaxrag.types import InputError
from tests.models.checkpoint.sharded import write_checkpoint
from tests.models.decoder.reference import (
    BASE,
    CONFIGS,
    LLAMA3,
    LONGROPE,
    random_tensors,
    reference_logits,
    stored,
)
from tests.versions import bfloat16_on_cpus

TOKENS = np.array([5, 17, 3, 96, 41, 41, 8, 60, 2, 33, 7], np.int32)


def checkpoint(directory: Path, config: dict[str, Any], **kwargs: Any) -> dict[str, np.ndarray]:
    decoder = Decoder(read_decoder_config(config, source="test"))
    tensors = random_tensors(parameter_shapes(decoder))
    write_checkpoint(directory, config, stored(config, tensors), **kwargs)
    return tensors


def load(directory: Path, dtype: Any = jnp.float32, **kwargs: Any) -> tuple[Decoder, Any]:
    return load_decoder(directory, dtype=jnp.dtype(dtype), **kwargs)


def full_logits(decoder: Decoder, params: Any, tokens: np.ndarray, offset: int = 0) -> np.ndarray:
    """Logits [t, v] of one sequence in one call."""
    if decoder.config.is_long(offset + len(tokens)):
        decoder = decoder.for_long_texts()
    positions = offset + np.arange(len(tokens))[None]
    return np.asarray(_logits(decoder, params, tokens[None], positions))


@partial(jax.jit, static_argnames="decoder")
def _logits(decoder: Decoder, params: Any, tokens: Any, positions: Any) -> jax.Array:
    t = tokens.shape[1]
    cache = empty_cache(decoder.config, 1, t, decoder.dtype, stacked=decoder.stacked)
    where = np.tril(np.ones((1, t, t), bool))
    hidden, _ = decoder.apply({"params": params}, tokens, positions, where=where, cache=cache)
    return decoder.apply({"params": params}, hidden[0], method="logits")


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in CONFIGS if name != "mistral"),
        pytest.param("mistral", marks=pytest.mark.slow),
    ],
)
def test_logits_equal_the_numpy_reference(name: str, tmp_path: Path) -> None:
    tensors = checkpoint(tmp_path, CONFIGS[name], shards=2)
    decoder, params = load(tmp_path)
    for offset in (0, 90):
        found = full_logits(decoder, params, TOKENS, offset)
        wanted = reference_logits(CONFIGS[name], tensors, TOKENS, offset)
        assert np.abs(wanted).max() > 2  # or the tolerance would mean little
        np.testing.assert_allclose(found, wanted, atol=2e-5, rtol=0)


def test_stacked_layers_have_windows_of_their_own(tmp_path: Path) -> None:
    """Gemma 2's layers alternate, which a scan over stacked layers must follow."""
    tensors = checkpoint(tmp_path, CONFIGS["gemma2"])
    found = full_logits(*load(tmp_path, stacked=True), TOKENS)
    wanted = reference_logits(CONFIGS["gemma2"], tensors, TOKENS)
    np.testing.assert_allclose(found, wanted, atol=2e-5, rtol=0)


def test_a_window_and_a_soft_cap_by_hand() -> None:
    # Four slots, the second of them padding. The token in the last one sees slots 0, 2, 3, whose
    # ranks from the last are 3, 2, 1: a window of 2 leaves 2 and 3.
    where = np.array([[[True, False, True, True]]])
    ranks = recency(jnp.asarray(where))
    assert ranks[0, 0, [0, 2, 3]].tolist() == [3, 2, 1]
    assert (where & within(ranks, 2)).tolist() == [[[False, False, True, True]]]
    assert (where & within(ranks, 0)).tolist() == where.tolist()
    # The query (1, 0) and keys (4, .), (2, .), (0, .), (-2, .) with scale 1/2: scores 2, 1, 0, -1;
    # capped at 1: tanh 2 = .96403, tanh 1 = .76159, 0, -.76159.
    q = jnp.array([[[[1.0, 0.0]]]])
    keys = jnp.array([[[[4.0, 2.0, 0.0, -2.0], [9.0, 9.0, 9.0, 9.0]]]])
    settings = {"scale": 0.5, "cap": 1.0}
    full = attention_weights(q, keys, where=jnp.ones((1, 1, 4), bool), **settings)
    shares = np.exp([0.96403, 0.76159, 0, -0.76159])  # 2.6222, 2.1417, 1, .4669; sum 6.2308
    np.testing.assert_allclose(full.ravel(), shares / 6.2308, atol=2e-5)
    # Of the window, slots 2 and 3: 1 / 1.4669 and .4669 / 1.4669.
    near = attention_weights(q, keys, where=jnp.asarray(where & within(ranks, 2)), **settings)
    np.testing.assert_allclose(near.ravel(), [0, 0, 0.68171, 0.31829], atol=2e-5)


@pytest.mark.parametrize(("t", "first"), [(8, 120), (1, 300), (32, 0)])
@pytest.mark.parametrize("cap", [0.0, 3.0])
def test_attention_to_used_slots_is_attention(t: int, first: int, cap: float) -> None:
    random = np.random.default_rng(0)
    shapes = (2, t, 4, 16), (2, 2, 16, 512), (2, 2, 512, 16)
    q, keys, values = (random.normal(size=shape).astype(np.float32) for shape in shapes)
    positions = np.stack([first + np.arange(t), 5 + np.arange(t)])  # the rows are far apart
    where = np.arange(512) <= positions[..., None]
    where &= np.arange(512) > positions[..., None] - 140  # a window: early blocks are masked
    settings = {"where": jnp.asarray(where), "scale": 0.25, "cap": cap}

    def attend(slots: int, used: int) -> np.ndarray:
        own = {**settings, "where": jnp.asarray(where[..., :slots])}
        args = q, jnp.asarray(keys[..., :slots]), jnp.asarray(values[:, :, :slots])
        return np.asarray(jax.jit(partial(attend_to_used, **own))(*args, used=np.int32(used)))

    found = attend(512, first + t)
    scores = np.einsum("btgme,bgec->bgmtc", q.reshape(2, t, 2, 2, 16).astype(float), keys) / 4
    scores = np.where(where[:, None, None], cap * np.tanh(scores / cap) if cap else scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    wanted = np.einsum("bgmtc,bgce->btgme", weights, values).reshape(2, t, 4, 16)
    np.testing.assert_allclose(found, wanted, atol=2e-6)
    # neither further slots that no query attends to, nor a larger bound, change a bit
    np.testing.assert_array_equal(attend(512, 512), found)
    np.testing.assert_array_equal(attend(-(-(first + t) // 128) * 128, first + t), found)


def test_matrices_with_inputs_first_give_the_same_logits(tmp_path: Path) -> None:
    checkpoint(tmp_path, CONFIGS["phi3"])
    decoder, params = load(tmp_path)
    wanted, matrices = full_logits(decoder, params, TOKENS), flatten(params)
    turned = flatten(inputs_first(params))
    names = {name for name in turned if name.endswith("kernel")}
    assert len(names) == 7 * CONFIGS["phi3"]["num_hidden_layers"]
    for name in names:
        np.testing.assert_array_equal(turned[name].T, matrices[name.replace("kernel", "weight")])
    assert set(turned) - names == {name for name in matrices if "_proj.weight" not in name}
    np.testing.assert_allclose(full_logits(decoder, params, TOKENS), wanted, atol=1e-5, rtol=0)


def test_fused_matrices_are_split_and_joined(tmp_path: Path) -> None:
    tensors = checkpoint(tmp_path / "phi3", CONFIGS["phi3"])
    config, params = CONFIGS["phi3"], load(tmp_path / "phi3")[1]
    for name, array in flatten(params).items():
        np.testing.assert_array_equal(array, tensors[name])
    save_decoder(tmp_path / "again", config, params)
    again, first = read_tensors(tmp_path / "again"), read_tensors(tmp_path / "phi3")
    assert set(again) == set(first)
    for name in first:
        np.testing.assert_array_equal(again[name], first[name])
    wrong = {**first, "model.layers.1.self_attn.qkv_proj.weight": np.zeros((41, 24), np.float32)}
    write_checkpoint(tmp_path / "wrong", config, wrong)
    with pytest.raises(InputError, match=r"wrong: model\.layers\.1\..* has 41 rows, .* 40"):
        load(tmp_path / "wrong")


@pytest.mark.parametrize("name", ["mistral", "phi3", "gemma2"])
def test_parameters_of_all_families_are_sharded(name: str) -> None:
    """The two halves of a layer, and the embeddings; norms are copied to each device."""
    mesh = Mesh(np.array(jax.devices()[:4]), ("model",))
    config = {**CONFIGS[name], "num_attention_heads": 4, "num_key_value_heads": 4,
              "partial_rotary_factor": 1.0, "rope_scaling": None, "vocab_size": 96}  # fmt: skip
    axes = dict.fromkeys(("q", "k", "v", "gate", "up"), 0) | {"o": 1, "down": 1}
    axes = {f"{part}_proj": axis for part, axis in axes.items()}
    axes |= {"embed_tokens": 0, "lm_head": 0}
    decoder = Decoder(read_decoder_config(config, source="test"))
    for path, shape in parameter_shapes(decoder).items():
        axis = axes.get(path.split(".")[-2])
        cut = tuple(n // 4 if i == axis else n for i, n in enumerate(shape))
        assert parameter_sharding(path, shape, mesh).shard_shape(shape) == cut, path


def test_eight_devices_equal_one(tmp_path: Path) -> None:
    """Gemma 2 over rows and parameters: windows, norms and caps on all devices."""
    checkpoint(tmp_path, {**CONFIGS["gemma2"], "num_hidden_layers": 1})
    tokens = np.stack([np.roll(TOKENS, i) for i in range(4)])
    found = []
    for mesh in (None, Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))):
        decoder, params = load(tmp_path, mesh=mesh)
        cache = empty_cache(decoder.config, 4, 16, jnp.float32)
        where = tokens if mesh is None else jax.device_put(tokens, NamedSharding(mesh, P("data")))
        hidden, _ = extend(decoder, params, cache, where, np.int32(0))
        found.append(np.asarray(hidden))
        assert mesh is None or len(hidden.sharding.device_set) == 8
    np.testing.assert_allclose(*found, atol=2e-5, rtol=0)


def test_original_length_outside_of_rope_scaling_takes_precedence() -> None:
    inside = {**LLAMA3, "original_max_position_embeddings": 64}
    config = {**BASE, "model_type": "llama", "original_max_position_embeddings": 32}
    assert (
        read_decoder_config({**config, "rope_scaling": inside}, source="a").rope
        == read_decoder_config({**config, "rope_scaling": LLAMA3}, source="b").rope
    )


@pytest.mark.parametrize("scaling", [None, LLAMA3])
def test_rope_parameters_equal_rope_scaling(scaling: Any) -> None:
    old = {**BASE, "model_type": "llama", "rope_scaling": scaling}
    new = {key: value for key, value in BASE.items() if key != "rope_theta"}
    new |= {"model_type": "llama", "rope_parameters": {**(scaling or {}), "rope_theta": 777.0}}
    assert read_decoder_config(old, source="a") == read_decoder_config(new, source="b")


@bfloat16_on_cpus
def test_bfloat16_is_near_float32(tmp_path: Path) -> None:
    checkpoint(tmp_path, CONFIGS["llama"])
    decoder, params = load(tmp_path, jnp.bfloat16)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.bfloat16)}
    found = full_logits(decoder, params, TOKENS)
    wanted = full_logits(*load(tmp_path), TOKENS)
    assert found.dtype == np.float32
    assert 0 < np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


@pytest.mark.parametrize(("family", "stacked"), [("gemma2", False), ("qwen3", True)])
def test_float16_is_near_float32(family: str, stacked: bool, tmp_path: Path) -> None:
    """Nearer than bfloat16: 2^-11 in place of 2^-9 a rounding."""
    checkpoint(tmp_path, CONFIGS[family])
    decoder, params = load_decoder(tmp_path, dtype=jnp.dtype(jnp.float16), stacked=stacked)
    found = full_logits(decoder, params, TOKENS)
    wanted = full_logits(*load(tmp_path), TOKENS)
    assert found.dtype == np.float32
    assert 0 < np.abs(found - wanted).max() < 0.01 * np.abs(wanted).max()
    cache = empty_cache(decoder.config, 1, len(TOKENS), jnp.float16, stacked=stacked)
    hidden, _ = extend(decoder, params, cache, TOKENS[None], np.int32(0))
    assert hidden.dtype == jnp.float16


def test_with_float16_the_residual_stream_may_exceed_its_range(tmp_path: Path) -> None:
    """A residual stream of up to 400,000, where float16 ends at 65,504: norms bring it back."""
    checkpoint(tmp_path, CONFIGS["llama"])
    found: dict[str, np.ndarray] = {}
    for name in ("float32", "float16"):
        decoder, params = load(tmp_path, jnp.dtype(name))
        tokens = jnp.asarray(TOKENS)[None]
        body = lambda own, tokens: own.model.embeddings(tokens)  # noqa: E731
        x: Any = 1e5 * decoder.apply({"params": params}, tokens, method=body)
        assert x.dtype == jnp.float32
        t = len(TOKENS)
        cache = empty_cache(decoder.config, 1, t, decoder.dtype)[0]
        rotation = rotation_of(jnp.arange(t)[None], *decoder.config.rope)
        context = (0, rotation, np.tril(np.ones((1, t, t), bool)), None, jnp.int32(0))
        layer, own = DecoderLayer(decoder.config), params["model"]["layers"]["0"]
        y, _ = layer.apply({"params": own}, x, cache, *context)
        assert y.dtype == jnp.float32 and np.abs(x).max() > 65_504
        found[name] = np.asarray(y - x)
    wanted = found["float32"]
    assert 0 < np.abs(found["float16"] - wanted).max() < 0.05 * np.abs(wanted).max()


def test_layers_are_traced_once_and_rotations_computed_once(tmp_path, monkeypatch) -> None:
    checkpoint(tmp_path, CONFIGS["llama"] | {"num_hidden_layers": 3})
    decoder, params = load(tmp_path)
    traced: list[str] = []
    call = DecoderLayer.__call__

    def counted(self: DecoderLayer, *args: Any) -> Any:
        traced.append(str(self.name))
        return call(self, *args)

    monkeypatch.setattr(DecoderLayer, "__call__", counted)
    cache = empty_cache(decoder.config, 1, 8, decoder.dtype)
    tokens = jnp.asarray(TOKENS)[None, :4]
    lowered = extend.lower(decoder, params, cache, tokens, jnp.int32(0))
    assert traced == ["0"]
    compiled = lowered.compile().as_text()
    assert compiled is not None
    assert [compiled.count(name) for name in (" cosine(", " sine(")] == [1, 1]


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
        ({"hidden_act": "swish2"}, "hidden_act is 'swish2'"),
        ({"model_type": "gemma2", "hidden_activation": "x"}, "hidden_activation is 'x'"),
        (
            {"use_sliding_window": True, "sliding_window": 0, "max_window_layers": 0},
            "sliding_window is 0",
        ),
        ({"layer_types": ["full_attention"] * 3}, "layer_types is .* the 2 layers"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "layer_types is .*chunked"),
        (
            {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": None},
            "sliding_window is None",
        ),
        ({"model_type": "gemma2", "query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
        ({"model_type": "gemma2", "attn_logit_softcapping": -1}, "attn_logit_softcapping is -1"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 3.0}}, "rope_scaling": None},
            "rope_parameters of single layer types",
        ),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, "rope_type is 'dynamic'"),
        (
            {"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}},
            "low_freq_factor 1.0 must be",
        ),
        (
            {"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1], "long_factor": [1]}},
            "longrope'.*long_factor has 1 numbers; it must have 2",
        ),
        ({"model_type": "phi3", "rope_scaling": {**LONGROPE, "long_mscale": 1.2}}, "long_mscale"),
        ({"model_type": "phi3", "partial_rotary_factor": 0.3}, "the rotated features, 1"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2}}, "lacks the setting 'short_fac"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "lacks the setting 'factor'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_theta": 0}, "rope_theta is 0"),  # not 10,000
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; it must be true or false"),
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
