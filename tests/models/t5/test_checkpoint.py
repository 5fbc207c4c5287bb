"""T5 checkpoints: read, made, written, and what is wrong with bad ones."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from jaxrag.models.checkpoint.files import write_checkpoint
from jaxrag.models.t5.checkpoint import (
    initial_deviation,
    load_t5,
    parameter_shapes,
    random_t5,
    save_t5,
)
from jaxrag.models.t5.config import T5Config, read_t5_config
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError
from tests.models.t5 import small_t5
from tests.models.t5.small_t5 import BASE, CONFIGS

FLOAT32 = jnp.dtype("float32")
KINDS = sorted(CONFIGS)


def flat(params: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in flatten_dict(params, sep=".").items()}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_written_checkpoint_is_read_back_bit_identically(kind, shards, tmp_path) -> None:
    tensors = small_t5.write(tmp_path / "a", CONFIGS[kind], shards=shards)
    model, params = load_t5(tmp_path / "a", dtype=FLOAT32)
    same(flat(params), tensors)
    small_t5.tokenizer().save_pretrained(save_t5(tmp_path / "b", model.config, params))
    again, read = load_t5(tmp_path / "b", dtype=FLOAT32)
    assert again == model
    same(flat(read), tensors)
    text = "who wrote a mat ; **"
    assert load_tokenizer(tmp_path / "b").encode(text) == small_t5.tokenizer().encode(text)


def test_tensor_names_equal_published_files() -> None:
    """By hand, of google/t5-v1_1: an encoder layer, a decoder layer, and what stands alone."""
    config = {**CONFIGS["1.1"], "num_layers": 1}
    names = set(parameter_shapes(read_t5_config(config, source="test")))
    attention = [f"{kind}.weight" for kind in "qkvo"]
    dense = ["wi_0.weight", "wi_1.weight", "wo.weight"]
    want = {"shared.weight", "lm_head.weight"}
    for stack in ("encoder", "decoder"):
        at, last = f"{stack}.block.0.layer", 1 if stack == "encoder" else 2
        want |= {f"{at}.0.SelfAttention.{name}" for name in attention}
        want |= {f"{at}.0.SelfAttention.relative_attention_bias.weight"}
        want |= {f"{at}.{i}.layer_norm.weight" for i in range(last + 1)}
        want |= {f"{at}.{last}.DenseReluDense.{name}" for name in dense}
        want |= {f"{stack}.final_layer_norm.weight"}
    want |= {f"decoder.block.0.layer.1.EncDecAttention.{name}" for name in attention}
    assert names == want


def test_copies_of_the_embedding_table_are_accepted(tmp_path: Path) -> None:
    tensors = small_t5.random_tensors(CONFIGS["1.0"])
    table = tensors["shared.weight"]
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    copies = {
        **{f"{stack}.embed_tokens.weight": table for stack in ("encoder", "decoder")},
        "lm_head.weight": table,
        unused: np.zeros((16, 4), np.float32),
    }
    write_checkpoint(tmp_path / "more", CONFIGS["1.0"], {**tensors, **copies})
    model, params = load_t5(tmp_path / "more", dtype=FLOAT32)
    same(flat(params), tensors)
    assert model.config.tied
    fewer = {name: array for name, array in tensors.items() if name != "shared.weight"}
    fewer["decoder.embed_tokens.weight"] = table
    write_checkpoint(tmp_path / "fewer", CONFIGS["1.0"], fewer)
    same(flat(load_t5(tmp_path / "fewer", dtype=FLOAT32)[1]), tensors)


def test_an_untied_output_layer_is_kept(tmp_path: Path) -> None:
    tensors = small_t5.random_tensors(CONFIGS["1.0"])
    head = {"lm_head.weight": tensors["shared.weight"] + 1}
    write_checkpoint(tmp_path, CONFIGS["1.0"], {**tensors, **head})
    model, params = load_t5(tmp_path, dtype=FLOAT32)
    assert (model.config.tied, model.config.scaled) == (False, True)
    same(flat(params), {**tensors, **head})
    save_t5(tmp_path / "again", model.config, params)
    assert load_t5(tmp_path / "again", dtype=FLOAT32)[0] == model


def test_defaults_and_derived_settings() -> None:
    least = {name: BASE[name] for name in ("vocab_size", "d_model", "d_kv", "d_ff", "num_layers")}
    config = read_t5_config({**least, "model_type": "t5", "num_heads": 4}, source="test")
    assert config == T5Config(60, 24, 7, 40, 2, 2, 4)
    assert (config.activation, config.gated, config.tied, config.scaled) == (
        *("relu", False),
        *(True, True),
    )
    published = read_t5_config(CONFIGS["1.1"], source="test")
    assert (published.activation, published.gated) == ("gelu_new", True)
    assert (published.tied, published.scaled) == (False, False)
    mixed = read_t5_config(CONFIGS["mixed"], source="test")
    assert (mixed.activation, mixed.gated, mixed.tied, mixed.scaled) == ("relu", True, True, False)
    assert mixed.decoder_start_token_id == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bart"}, "model_type is 'bart'"),
        ({"d_kv": 0}, "d_kv is 0; it must be an integer from 1"),
        ({"num_decoder_layers": 0}, "num_decoder_layers is 0"),  # not those of the encoder
        ({"vocab_size": None}, "vocab_size is None"),
        ({"feed_forward_proj": "gated-swish"}, "feed_forward_proj is 'gated-swish'; allowed"),
        ({"feed_forward_proj": 3}, "feed_forward_proj is 3"),
        ({"dropout_rate": 1.0}, "dropout_rate is 1.0"),
        ({"relative_attention_num_buckets": 2}, "num_buckets is 2; it must be an integer from 4"),
        ({"relative_attention_max_distance": 8}, "max_distance is 8; it must be above half"),
        ({"eos_token_id": 60}, "eos_token_id is 60; it must be a token id from 0 to 59"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
    ],
)
def test_unsupported_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_t5_config({**BASE, **changes}, source="its path")
    assert str(caught.value).startswith("its path: ")


def test_faulty_weights_are_refused(tmp_path: Path) -> None:
    tensors = small_t5.random_tensors(CONFIGS["1.1"])

    def message(path: str, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> str:
        write_checkpoint(tmp_path / path, config, tensors)
        with pytest.raises(InputError) as caught:
            load_t5(tmp_path / path, dtype=FLOAT32)
        return str(caught.value)

    headless = {key: array for key, array in tensors.items() if key != "lm_head.weight"}
    assert "missing: lm_head.weight" in message("headless", CONFIGS["1.1"], headless)
    empty = {key: array for key, array in tensors.items() if key != "shared.weight"}
    assert "shared.weight is missing" in message("empty", CONFIGS["1.1"], empty)
    two = {**tensors, "encoder.embed_tokens.weight": tensors["shared.weight"] + 1}
    assert "different embedding tables" in message("two", CONFIGS["1.1"], two)


def test_float16_and_trees_of_another_shape_are_refused(tmp_path: Path) -> None:
    small_t5.write(tmp_path, CONFIGS["1.0"])
    with pytest.raises(InputError, match="float16"):
        load_t5(tmp_path, dtype=jnp.dtype("float16"))
    model, params = load_t5(tmp_path, dtype=FLOAT32)
    deeper = dataclasses.replace(model.config, num_layers=3)
    with pytest.raises(InputError, match=r"missing: encoder\.block\.2"):
        save_t5(tmp_path / "other", deeper, params)
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_initial_deviations_worked_by_hand() -> None:
    config = T5Config(1000, 64, 16, 128, 1, 1, 2, initializer_factor=0.5, tied=False, scaled=False)
    at = "encoder.block.0.layer"
    for name, want in {
        "shared.weight": 0.5,
        "lm_head.weight": 0.5,
        f"{at}.0.SelfAttention.q.weight": 0.5 / 32,  # (64 x 16)^-1/2
        f"{at}.0.SelfAttention.k.weight": 0.5 / 8,  # 64^-1/2
        f"{at}.0.SelfAttention.o.weight": 0.5 / 32**0.5,  # 2 heads of 16
        f"{at}.0.SelfAttention.relative_attention_bias.weight": 0.5 / 8,
        f"{at}.1.DenseReluDense.wi.weight": 0.5 / 8,
        f"{at}.1.DenseReluDense.wo.weight": 0.5 / 128**0.5,
    }.items():
        assert initial_deviation(name, config) == pytest.approx(want)
    drawn = flat(random_t5(config, jax.random.key(3)))
    assert drawn.keys() == parameter_shapes(config).keys()
    assert (drawn[f"{at}.0.layer_norm.weight"] == 0.5).all()
    for name, array in drawn.items():
        if array.size > 2000:
            want = initial_deviation(name, config)
            # five standard deviations of the estimate of one
            assert array.std() == pytest.approx(want, rel=5 / (2 * array.size) ** 0.5), name
    again = flat(random_t5(config, jax.random.key(3)))
    same(drawn, again)
    one, other = (drawn[f"{at}.0.SelfAttention.{name}.weight"] for name in "kv")
    assert (one != other).any()


def test_parameters_are_sharded_over_a_mesh(tmp_path: Path) -> None:
    small_t5.write(tmp_path, CONFIGS["1.0"])
    mesh = jax.make_mesh((4,), ("model",), devices=jax.devices()[:4])
    _, params = load_t5(tmp_path, dtype=FLOAT32, mesh=mesh)
    parts = {
        name: leaf.sharding.shard_shape(leaf.shape)
        for name, leaf in flatten_dict(params, sep=".").items()
    }
    at = "decoder.block.0.layer"
    assert parts["shared.weight"] == (15, 24)
    assert parts[f"{at}.0.SelfAttention.q.weight"] == (7, 24)
    assert parts[f"{at}.1.EncDecAttention.o.weight"] == (24, 7)
    assert parts[f"{at}.2.DenseReluDense.wo.weight"] == (24, 10)
    assert parts[f"{at}.0.SelfAttention.relative_attention_bias.weight"] == (16, 1)
    assert parts[f"{at}.0.layer_norm.weight"] == (24,)
