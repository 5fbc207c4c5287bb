"""The decoder once more, in float64 NumPy: one sequence, no cache, written from the papers."""

import math
from typing import Any

import numpy as np

# Small, and away from every default: head counts, head_dim, theta, eps, tying.
BASE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 3e-4,
    "rope_theta": 777.0,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**BASE, "model_type": "llama", "head_dim": 8, "rope_scaling": LLAMA3},
    "llama-biases": {
        **BASE,
        "model_type": "llama",
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
        "rope_scaling": {"type": "linear", "factor": 2.5},
    },
    "qwen2": {**BASE, "model_type": "qwen2", "rope_scaling": YARN},
    "qwen2-tied": {**BASE, "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {**BASE, "model_type": "qwen3", "head_dim": 10, "tie_word_embeddings": True},
    "qwen3-bias": {
        **{key: value for key, value in BASE.items() if key != "rope_theta"},
        "model_type": "qwen3",
        "head_dim": 6,
        "attention_bias": True,
        "rope_parameters": {**YARN, "rope_theta": 555.0},
    },
}


def random_tensors(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Weights large enough that every part of the network shows in the logits."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.normal(size=shape) * 0.3 + ("norm" in name)).astype(np.float32)
        for name, shape in sorted(shapes.items())
    }


def frequencies(config: dict[str, Any], head_dim: int) -> tuple[np.ndarray, float]:
    """Rotation speeds pair by pair, and the factor on sin and cos."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = scaling.get("rope_theta", config.get("rope_theta"))
    kind = scaling.get("rope_type", scaling.get("type"))
    speeds, scale = [], 1.0
    for i in range(0, head_dim, 2):
        speed = 1 / theta ** (i / head_dim)
        if kind == "linear":
            speed /= scaling["factor"]
        if kind == "llama3":
            wavelength, original = 2 * math.pi / speed, 32
            if wavelength > original / 1:
                speed /= 8
            elif wavelength > original / 4:
                share = (original / wavelength - 1) / (4 - 1)
                speed = (1 - share) * speed / 8 + share * speed
        if kind == "yarn":
            # pairs that turn more than 32 times in 128 positions stay, less than once: a quarter
            def pair(turns: float) -> float:
                return head_dim * math.log(128 / (turns * 2 * math.pi)) / (2 * math.log(theta))

            low = max(math.floor(pair(32)), 0)
            high = min(math.ceil(pair(1)), head_dim - 1)
            slowed = min(max((i / 2 - low) / (high - low), 0), 1)
            speed = slowed * speed / 4 + (1 - slowed) * speed
            scale = 0.1 * math.log(4) + 1
        speeds.append(speed)
    return np.array(speeds), scale


def reference_logits(
    config: dict[str, Any], tensors: dict[str, np.ndarray], tokens: np.ndarray, offset: int = 0
) -> np.ndarray:
    """Logits [t, v] of a sequence whose first token has position ``offset``."""
    w = {name: array.astype(np.float64) for name, array in tensors.items()}
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    speeds, scale = frequencies(config, size)
    t = len(tokens)

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        mean = (x**2).mean(-1, keepdims=True)
        return x / np.sqrt(mean + config["rms_norm_eps"]) * w[f"{name}.weight"]

    def turn(x: np.ndarray, position: int) -> np.ndarray:
        """Rotation as multiplication of complex numbers."""
        pairs = (x[: size // 2] + 1j * x[size // 2 :]) * np.exp(1j * position * speeds) * scale
        return np.concatenate([pairs.real, pairs.imag])

    x = w["model.embed_tokens.weight"][tokens]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}"
        y = norm(x, f"{at}.input_layernorm")
        q = linear(y, f"{at}.self_attn.q_proj").reshape(t, heads, size)
        k = linear(y, f"{at}.self_attn.k_proj").reshape(t, groups, size)
        v = linear(y, f"{at}.self_attn.v_proj").reshape(t, groups, size)
        if config["model_type"] == "qwen3":
            q, k = norm(q, f"{at}.self_attn.q_norm"), norm(k, f"{at}.self_attn.k_norm")
        out = np.zeros((t, heads, size))
        for h in range(heads):
            g = h // (heads // groups)
            for now in range(t):
                query = turn(q[now, h], offset + now)
                seen = np.array([turn(k[s, g], offset + s) for s in range(now + 1)])
                weights = np.exp(seen @ query / math.sqrt(size))
                out[now, h] = weights / weights.sum() @ v[: now + 1, g]
        x = x + linear(out.reshape(t, -1), f"{at}.self_attn.o_proj")
        y = norm(x, f"{at}.post_attention_layernorm")
        gate = linear(y, f"{at}.mlp.gate_proj")
        gate = gate / (1 + np.exp(-gate))
        x = x + linear(gate * linear(y, f"{at}.mlp.up_proj"), f"{at}.mlp.down_proj")
    x = norm(x, "model.norm")
    return x @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
