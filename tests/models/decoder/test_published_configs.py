"""The config.json files of the papers' models, as published, and what is read from them."""

from typing import Any

import pytest

from jaxrag.models.decoder.config import DecoderConfig, read_decoder_config

COMMON: dict[str, Any] = {
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}
MISTRAL: dict[str, Any] = {
    **COMMON,
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
PHI3: dict[str, Any] = {
    **COMMON,
    "architectures": ["Phi3ForCausalLM"],
    "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
    "model_type": "phi3",
    "attention_bias": False,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "hidden_act": "silu",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "pad_token_id": 32000,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "sliding_window": 2047,
    "tie_word_embeddings": False,
    "vocab_size": 32064,
}
FACTORS = [1.0 + i / 16 for i in range(48)]  # the published lists have 48 numbers each, too
GEMMA2: dict[str, Any] = {
    **COMMON,
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "attention_bias": False,
    "attn_logit_softcapping": 50.0,
    "cache_implementation": "hybrid",
    "final_logit_softcapping": 30.0,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 16,
    "num_hidden_layers": 42,
    "num_key_value_heads": 8,
    "pad_token_id": 0,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "sliding_window_size": 4096,
    "vocab_size": 256000,
}
LLAMA31: dict[str, Any] = {
    **COMMON,
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}


def read(config: dict[str, Any]) -> DecoderConfig:
    return read_decoder_config(config, source="published")


def test_mistral() -> None:
    """v0.1 has a window; v0.2 and v0.3 have none and another theta."""
    first = read(MISTRAL)
    assert first.windows == (4096,) * 32 and first.query_scale == 128**-0.5
    third = {**MISTRAL, "sliding_window": None, "rope_theta": 1e6, "vocab_size": 32768}
    assert read(third).windows == ()
    assert read(third).rope.frequencies[1] == pytest.approx(1e6 ** (-2 / 128))


def test_phi3_mini_4k() -> None:
    found = read(PHI3)
    assert found.windows == (2047,) * 32 and found.long_rope is None and not found.is_long(4096)
    assert found.rope.frequencies[1] == pytest.approx(10000 ** (-2 / 96))


@pytest.mark.parametrize("kind", ["longrope", "su", "yarn"])
def test_phi3_mini_128k(kind: str) -> None:
    """Its scaling had other names at first. sqrt(1 + log 32 / log 4096) = sqrt(1 + 5/12)."""
    scaling = {"type": kind, "short_factor": FACTORS, "long_factor": [4 * f for f in FACTORS]}
    config = {**PHI3, "max_position_embeddings": 131072, "rope_scaling": scaling}
    found = read({**config, "sliding_window": 262144})
    assert found.long_rope is not None and found.short_length == 4096
    assert not found.is_long(4096) and found.is_long(4097)
    assert found.rope.scale == found.long_rope.scale == pytest.approx((17 / 12) ** 0.5)
    assert found.rope.frequencies[0] == 1 and found.long_rope.frequencies[0] == 1 / 4
    assert found.rope.frequencies[16] == pytest.approx(10000 ** (-32 / 96) / 2)


def test_gemma2_9b_and_27b() -> None:
    """The file does not say that the output layer is tied."""
    found = read(GEMMA2)
    assert found.tied and found.post_norms and found.norm_offset == 1
    assert found.windows == (4096, 0) * 21 and found.activation == "gelu_pytorch_tanh"
    assert (found.query_scale, found.score_cap, found.logit_cap) == (1 / 16, 50, 30)
    assert found.embedding_scale == 3584**0.5
    wide = {"hidden_size": 4608, "intermediate_size": 36864, "num_attention_heads": 32}
    wide |= {"num_hidden_layers": 46, "num_key_value_heads": 16, "head_dim": 128}
    assert read({**GEMMA2, **wide, "query_pre_attn_scalar": 144}).query_scale == 1 / 12
    bare = {k: v for k, v in GEMMA2.items() if "softcap" not in k and k != "query_pre_attn_scalar"}
    assert read(bare) == found  # transformers' defaults
    assert read({**GEMMA2, "attn_logit_softcapping": None}).score_cap == 0


def test_llama_31_32_and_33() -> None:
    """Wavelengths under 8192 / 4 are kept, those over 8192 divided by the factor."""
    found, plain = read(LLAMA31), read({**LLAMA31, "rope_scaling": None})
    ratios = [a / b for a, b in zip(plain.rope.frequencies, found.rope.frequencies, strict=True)]
    waves = [2 * 3.141592653589793 / f for f in plain.rope.frequencies]
    assert found.windows == () and len(ratios) == 64
    for ratio, wave in zip(ratios, waves, strict=True):
        if wave < 2048:
            assert ratio == 1
        elif wave > 8192:
            assert ratio == pytest.approx(8)
        else:
            assert 1 < ratio < 8
    small = {"hidden_size": 2048, "head_dim": 64, "tie_word_embeddings": True}
    scaling = {**LLAMA31["rope_scaling"], "factor": 32.0}
    assert read({**LLAMA31, **small, "rope_scaling": scaling}).tied
    wide = {"hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 80}
    assert read({**LLAMA31, **wide}).rope == found.rope
