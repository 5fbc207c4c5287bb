"""A small random NomicBert with its published config, and what it computes in float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxrag.models.bert.checkpoint import parameter_shapes
from jaxrag.models.bert.nomic import NomicEncoder, read_nomic_config

CONFIG: dict[str, Any] = {
    "model_type": "nomic_bert",
    "architectures": ["NomicBertModel"],
    "vocab_size": 40,
    "n_embd": 24,
    "n_inner": 40,
    "n_layer": 2,
    "n_head": 3,
    "n_positions": 96,
    "max_trained_positions": 64,
    "type_vocab_size": 2,
    "layer_norm_epsilon": 1e-2,
    "activation_function": "swiglu",
    "prenorm": False,
    "parallel_block": False,
    "causal": False,
    "use_rms_norm": False,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "rotary_emb_base": 50,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "attn_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
}


def random_tensors(config: dict[str, Any], *, seed: int = 0) -> dict[str, np.ndarray]:
    """Parameters large enough that every one of them shows in the output."""
    module = NomicEncoder(read_nomic_config(config, source="test"))
    random = np.random.default_rng(seed)

    def is_scale(name: str) -> bool:
        return name.endswith((".norm1.weight", ".norm2.weight", "emb_ln.weight"))

    return {
        name: random.normal(float(is_scale(name)), 0.3, shape).astype(np.float32)
        for name, shape in parameter_shapes(module).items()
    }


def hidden_states(
    tensors: dict[str, np.ndarray], config: dict[str, Any], ids: Any, segments: Any, where: Any
) -> np.ndarray:
    """The last layer's states [b t d], one row, head, and rotated pair of entries at a time."""
    p = {name: np.asarray(a, np.float64) for name, a in tensors.items()}
    eps, heads, d = config["layer_norm_epsilon"], config["n_head"], config["n_embd"]

    def linear(x: Any, name: str) -> Any:
        return x @ p[name + ".weight"].T + p.get(name + ".bias", 0.0)

    def norm(x: Any, name: str) -> Any:
        y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
        return y * p[name + ".weight"] + p[name + ".bias"]

    def rotated(x: np.ndarray) -> np.ndarray:
        """[t f] with the pair (i, i + f/2) of position t turned by t * base ** (-2 i / f)."""
        f = x.shape[1]
        out = np.zeros_like(x)
        for t in range(len(x)):
            for i in range(f // 2):
                angle = t * config["rotary_emb_base"] ** (-2 * i / f)
                pair = complex(x[t, i], x[t, i + f // 2]) * complex(np.cos(angle), np.sin(angle))
                out[t, i], out[t, i + f // 2] = pair.real, pair.imag
        return out

    def attention(x: np.ndarray, name: str, real: np.ndarray) -> np.ndarray:
        projected, out, size = linear(x, name + ".Wqkv"), np.zeros_like(x), d // heads
        for head in range(heads):
            columns = slice(head * size, (head + 1) * size)
            query, key, value = (projected[:, i * d : (i + 1) * d][:, columns] for i in range(3))
            scores = rotated(query) @ rotated(key).T / np.sqrt(size)
            weights = np.exp(scores - scores.max()) * real
            out[:, columns] = weights / weights.sum(-1, keepdims=True) @ value
        return linear(out, name + ".out_proj")

    e = "embeddings."
    words, kinds = p[e + "word_embeddings.weight"], p[e + "token_type_embeddings.weight"]
    rows = []
    for row in range(len(ids)):
        x = norm(words[ids[row]] + kinds[segments[row]], "emb_ln")
        for i in range(config["n_layer"]):
            layer = f"encoder.layers.{i}."
            x = norm(x + attention(x, layer + "attn", where[row]), layer + "norm1")
            gate = linear(x, layer + "mlp.fc12")
            y = linear(x, layer + "mlp.fc11") * gate / (1 + np.exp(-gate))
            x = norm(x + linear(y, layer + "mlp.fc2"), layer + "norm2")
        rows.append(x)
    return np.stack(rows)
