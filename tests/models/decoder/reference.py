"""The decoder once more, in float64 NumPy: one sequence, no cache, written from the papers."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

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
LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0, 1.3, 2.2],
    "long_factor": [2.0, 4.0, 30.0],
}
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
    "qwen2-window": {
        **BASE,
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 3,
        "max_window_layers": 1,
    },
    "mistral": {**BASE, "model_type": "mistral", "head_dim": 8, "sliding_window": 4},
    "phi3": {
        **BASE,
        "model_type": "phi3",
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "sliding_window": 7,
        "pad_token_id": 0,
        "partial_rotary_factor": 0.75,  # 6 of 8 features of a head
        "original_max_position_embeddings": 32,
        "rope_scaling": LONGROPE,
    },
    "gemma2": {
        **{key: value for key, value in BASE.items() if key != "hidden_act"},
        "model_type": "gemma2",
        "num_hidden_layers": 3,
        "head_dim": 8,
        "sliding_window": 4,
        "query_pre_attn_scalar": 3,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    },
}


class Traits(NamedTuple):
    """What distinguishes a family, written down from its paper; ``windows`` by layer, 0 is none."""

    windows: list[int]
    scale: float
    score_cap: float = math.inf
    logit_cap: float = math.inf
    offset: float = 0.0
    embedding: float = 1.0
    activation: Callable[[np.ndarray], np.ndarray] = lambda x: x / (1 + np.exp(-x))
    post_norms: bool = False


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def traits(config: dict[str, Any], head_dim: int) -> Traits:
    kind, layers = config["model_type"], range(config["num_hidden_layers"])
    window = config.get("sliding_window") or 0
    if kind == "gemma2":
        return Traits(
            windows=[0 if i % 2 else window for i in layers],
            scale=1 / math.sqrt(config["query_pre_attn_scalar"]),
            score_cap=config["attn_logit_softcapping"],
            logit_cap=config["final_logit_softcapping"],
            offset=1.0,
            embedding=math.sqrt(config["hidden_size"]),
            activation=gelu_tanh,
            post_norms=True,
        )
    if kind in ("mistral", "phi3"):
        windows = [window for _ in layers]
    else:
        used = config.get("use_sliding_window", False)
        windows = [window if used and i >= config["max_window_layers"] else 0 for i in layers]
    return Traits(windows, 1 / math.sqrt(head_dim))


def capped(x: np.ndarray, cap: float) -> np.ndarray:
    return x if cap == math.inf else cap * np.tanh(x / cap)


def random_tensors(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Weights large enough that every part of the network shows in the logits."""
    rng = np.random.default_rng(seed)
    near = 0.0 if any("pre_feedforward" in name for name in shapes) else 1.0  # Gemma adds the 1
    return {
        name: (rng.normal(size=shape) * 0.3 + near * ("norm" in name)).astype(np.float32)
        for name, shape in sorted(shapes.items())
    }


def stored(config: dict[str, Any], tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors as the family's checkpoints hold them: Phi-3's matrices side by side."""
    if config["model_type"] != "phi3":
        return tensors
    found = {k: v for k, v in tensors.items() if not k.endswith("proj.weight")}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}"
        for name, parts in {
            "self_attn.qkv_proj": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            "self_attn.o_proj": ["self_attn.o_proj"],
            "mlp.gate_up_proj": ["mlp.gate_proj", "mlp.up_proj"],
            "mlp.down_proj": ["mlp.down_proj"],
        }.items():
            pieces = [tensors[f"{at}.{part}.weight"] for part in parts]
            found[f"{at}.{name}.weight"] = np.concatenate(pieces)
    return found


def frequencies(config: dict[str, Any], head_dim: int, length: int = 1) -> tuple[np.ndarray, float]:
    """Rotation speeds pair by pair in a text of so many tokens, and the factor on sin and cos."""
    head_dim = int(head_dim * config.get("partial_rotary_factor", 1))
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
        if kind == "longrope":  # 512 positions, 32 of them original
            factors = scaling["long_factor" if length > 32 else "short_factor"]
            speed /= factors[i // 2]
            scale = math.sqrt(1 + math.log(512 / 32) / math.log(32))
        speeds.append(speed)
    return np.array(speeds), scale


def reference_logits(
    config: dict[str, Any], tensors: dict[str, np.ndarray], tokens: np.ndarray, offset: int = 0
) -> np.ndarray:
    """Logits [t, v] of a sequence whose first token has position ``offset``."""
    return _inside(config, tensors, tokens, offset)[2]


def reference_inside(
    config: dict[str, Any], tensors: dict[str, np.ndarray], tokens: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a sequence: the last layer's attention [t t], mean over heads; the residual stream after
    each layer [l t d], the embeddings first; and natural-log probabilities [t v]."""
    attention, states, logits, _ = _inside(config, tensors, tokens)
    shifted = logits - logits.max(-1, keepdims=True)
    return attention, states, shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def reference_mlps(
    config: dict[str, Any], tensors: dict[str, np.ndarray], tokens: np.ndarray
) -> np.ndarray:
    """Output of each layer's MLP [l t d]."""
    return _inside(config, tensors, tokens)[3]


def _inside(
    config: dict[str, Any], tensors: dict[str, np.ndarray], tokens: np.ndarray, offset: int = 0
) -> tuple[np.ndarray, ...]:
    """Attention, states, logits and outputs of MLPs: no cache, whole matrices at once."""
    w = {name: array.astype(np.float64) for name, array in tensors.items()}
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    t, own = len(tokens), traits(config, size)
    speeds, scale = frequencies(config, size, offset + t)
    n = len(speeds)
    angles = np.outer(offset + np.arange(t), speeds)

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        mean = (x**2).mean(-1, keepdims=True)
        return x / np.sqrt(mean + config["rms_norm_eps"]) * (own.offset + w[f"{name}.weight"])

    def turned(x: np.ndarray) -> np.ndarray:
        first, second, rest = np.split(x, (n, 2 * n), axis=-1)
        cos, sin = np.cos(angles)[:, None] * scale, np.sin(angles)[:, None] * scale
        return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], -1)

    x = w["model.embed_tokens.weight"][tokens] * own.embedding
    states, mlps, weights = [x], [], np.zeros((heads, t, t))
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}"
        y = norm(x, f"{at}.input_layernorm")
        q = linear(y, f"{at}.self_attn.q_proj").reshape(t, heads, size)
        k = linear(y, f"{at}.self_attn.k_proj").reshape(t, groups, size)
        v = linear(y, f"{at}.self_attn.v_proj").reshape(t, groups, size)
        if config["model_type"] == "qwen3":
            q, k = norm(q, f"{at}.self_attn.q_norm"), norm(k, f"{at}.self_attn.k_norm")
        q, k = turned(q), np.repeat(turned(k), heads // groups, axis=1)
        scores = capped(np.einsum("qhe,khe->hqk", q, k) * own.scale, own.score_cap)
        seen = np.tri(t, dtype=bool) & ~np.tri(t, k=-(own.windows[i] or t), dtype=bool)
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out = np.einsum("hqk,khe->qhe", weights, np.repeat(v, heads // groups, axis=1))
        y = linear(out.reshape(t, -1), f"{at}.self_attn.o_proj")
        x = x + (norm(y, f"{at}.post_attention_layernorm") if own.post_norms else y)
        before = "pre_feedforward" if own.post_norms else "post_attention"
        y = norm(x, f"{at}.{before}_layernorm")
        gate = own.activation(linear(y, f"{at}.mlp.gate_proj"))
        y = linear(gate * linear(y, f"{at}.mlp.up_proj"), f"{at}.mlp.down_proj")
        mlps.append(y)
        x = x + (norm(y, f"{at}.post_feedforward_layernorm") if own.post_norms else y)
        states.append(x)
    logits = norm(x, "model.norm") @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
    return weights.mean(0), np.stack(states), capped(logits, own.logit_cap), np.stack(mlps)
