"""The decoder's inside in float64 NumPy: one sequence, no cache, whole matrices at once."""

from typing import Any

import numpy as np

from tests.models.decoder.reference import capped, frequencies, traits


def reference_inside(
    config: dict[str, Any], tensors: dict[str, np.ndarray], tokens: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a sequence: the last layer's attention [t t], mean over heads; the residual stream after
    each layer [l t d], the embeddings first; and natural-log probabilities [t v]."""
    return _inside(config, tensors, tokens)[:3]


def reference_mlps(
    config: dict[str, Any], tensors: dict[str, np.ndarray], tokens: np.ndarray
) -> np.ndarray:
    """Output of each layer's MLP [l t d]."""
    return _inside(config, tensors, tokens)[3]


def _inside(
    config: dict[str, Any], tensors: dict[str, np.ndarray], tokens: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    w = {name: array.astype(np.float64) for name, array in tensors.items()}
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    t, own = len(tokens), traits(config, size)
    speeds, scale = frequencies(config, size, t)
    n = len(speeds)
    angles = np.outer(np.arange(t), speeds)

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
    logits = capped(logits, own.logit_cap)
    top = logits.max(-1, keepdims=True)
    logp = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    return weights.mean(0), np.stack(states), logp, np.stack(mlps)
