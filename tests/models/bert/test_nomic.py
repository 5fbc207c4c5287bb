from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.bert.checkpoint import load_encoder, read_encoder_config
from jaxrag.models.bert.nomic import read_nomic_config, rotation_over
from jaxrag.models.checkpoint.files import write_checkpoint
from jaxrag.models.rotary import rotate
from jaxrag.types import InputError
from tests.models.bert import small_nomic
from tests.models.bert.small_nomic import CONFIG
from tests.models.bert.test_network import inputs, jitted

FLOAT32 = jnp.dtype("float32")
BIASED = CONFIG | {"qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True}


def written(path: Path, config: dict[str, Any] = CONFIG) -> tuple[Any, Any, dict[str, np.ndarray]]:
    tensors = small_nomic.random_tensors(config)
    module, params = load_encoder(write_checkpoint(path, config, tensors), dtype=FLOAT32)
    return module, params, tensors


def given(lengths: tuple[int, ...] = (7, 12, 1, 5)) -> tuple[Any, Any, Any]:
    return inputs({"vocab_size": 40, "type_vocab_size": 2, "pad_token_id": 0}, lengths)


@pytest.mark.parametrize("config", [CONFIG, BIASED], ids=["published", "with biases"])
def test_hidden_states_equal_the_float64_reference(config, tmp_path):
    module, params, tensors = written(tmp_path, config)
    ids, segments, where = given()
    got = jitted(module, params, ids, segments, where)
    want = small_nomic.hidden_states(tensors, config, ids, segments, where)
    np.testing.assert_allclose(np.asarray(got)[where], want[where], atol=2e-5)


def test_a_rotation_by_hand():
    # base 100, 4 entries: position 2 turns (x0, x2) by 2 and (x1, x3) by 2 * 100 ** -0.5 = 0.2
    x = jnp.broadcast_to(jnp.array([1.0, 0.0, 0.0, 3.0]), (1, 3, 1, 4))
    found = rotate(x, rotation_over(3, base=100.0, features=4))[0, :, 0]
    np.testing.assert_allclose(found[0], [1, 0, 0, 3])
    want = [np.cos(2), -3 * np.sin(0.2), np.sin(2), 3 * np.cos(0.2)]
    np.testing.assert_allclose(found[2], want, atol=1e-6)


def test_a_masked_language_model_gives_the_encoder(tmp_path):
    module, params, tensors = written(tmp_path / "plain")
    named = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    named |= {"cls.predictions.bias": np.zeros(40, np.float32)}
    other, same = load_encoder(write_checkpoint(tmp_path / "mlm", CONFIG, named), dtype=FLOAT32)
    assert module == other
    jax.tree.map(np.testing.assert_array_equal, params, same)


def test_norms_stay_in_float32(tmp_path):
    written(tmp_path)
    _, params = load_encoder(tmp_path, dtype=jnp.dtype("bfloat16"))
    assert params["emb_ln"]["weight"].dtype == jnp.float32
    assert params["encoder.layers.0"]["norm1"]["bias"].dtype == jnp.float32
    assert params["encoder.layers.0"]["attn.Wqkv"]["weight"].dtype == jnp.bfloat16


def test_the_published_config_is_read(tmp_path):
    found = read_encoder_config(write_checkpoint(tmp_path, CONFIG, {}))
    assert (found.hidden_size, found.max_tokens, found.pad_token_id) == (24, 64, 0)
    without = {key: value for key, value in CONFIG.items() if key != "max_trained_positions"}
    assert read_nomic_config(without, source="").max_tokens == 96


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_function": "gelu"}, "activation_function is 'gelu'; only 'swiglu'"),
        ({"prenorm": True}, "prenorm is True; only False"),
        ({"rotary_emb_fraction": 0.5}, "rotary_emb_fraction is 0.5"),
        ({"rotary_emb_interleaved": True}, "rotary_emb_interleaved is True"),
        ({"rotary_emb_base": 0}, "rotary_emb_base is 0"),
        ({"n_head": 24}, "n_embd 24 is not an even multiple of n_head 24"),
        ({"n_embd": None}, "n_embd is None"),
    ],
)
def test_unsupported_settings_are_refused(change, message):
    with pytest.raises(InputError, match=f"somewhere: {message}"):
        read_nomic_config(CONFIG | change, source="somewhere")


def test_other_model_types_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"'gpt2'; an encoder is one of bert, .*nomic_bert"):
        read_encoder_config(write_checkpoint(tmp_path, {"model_type": "gpt2"}, {}))


@pytest.mark.parity
def test_parity_with_torch(tmp_path):
    torch = pytest.importorskip("torch")
    module, params, tensors = written(tmp_path)
    peer = torch_model(tensors)
    ids, segments, where = given((20, 3, 11, 1))
    with torch.no_grad():
        out = peer(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(where.astype(int)),
            token_type_ids=torch.tensor(segments),
        )
    got = np.asarray(jitted(module, params, ids, segments, where))
    np.testing.assert_allclose(got[where], out.last_hidden_state.numpy()[where], atol=2e-5)


def torch_model(tensors: dict[str, np.ndarray]) -> Any:
    """The class of transformers with the settings of `CONFIG`."""
    import torch
    import transformers

    config = transformers.NomicBertConfig(
        vocab_size=40, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=3, layer_norm_eps=1e-2, max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 50.0},
    )  # fmt: skip
    peer = transformers.NomicBertModel(config).eval()
    peer.load_state_dict(renamed(tensors, torch), strict=True)
    return peer


def renamed(tensors: dict[str, np.ndarray], torch: Any) -> dict[str, Any]:
    """Tensors under the names of transformers' own class."""
    names = {
        "encoder.layers": "layers", "emb_ln": "embeddings.LayerNorm",
        "attn.out_proj": "self_attn.o_proj", "mlp.fc11": "mlp.up_proj",
        "mlp.fc12": "mlp.gate_proj", "mlp.fc2": "mlp.down_proj",
        "norm1": "post_attention_layernorm", "norm2": "post_mlp_layernorm",
    }  # fmt: skip
    found = {}
    for name, tensor in tensors.items():
        for old, new in names.items():
            name = name.replace(old, new)
        if "Wqkv" in name:
            for part, rows in zip("qkv", np.split(tensor, 3), strict=True):
                found[name.replace("attn.Wqkv", f"self_attn.{part}_proj")] = torch.tensor(rows)
        else:
            found[name] = torch.tensor(tensor)
    return found
