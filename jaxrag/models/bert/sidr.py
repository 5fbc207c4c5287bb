"""SiDR, the retriever of R3: texts as weights over the vocabulary, with its checkpoints.

docs/methods, "R3: SiDR"; Zhou et al., "Semi-parametric retrieval via binary bag-of-tokens
index". E(x) is the maximum over the text's tokens of elu(z) + 1, where z are logits: BERT's last
hidden states, normalised, times the word embeddings. T(x) is 1 at the text's tokens and needs no
network. Both exclude the token ids below ``first`` (999 in BERT's vocabulary: padding, special and
unused tokens), as the released code does.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxrag.models.bert.checkpoint import BUFFERS, HEADS, modern_names, parameters, read_bert_config
from jaxrag.models.bert.network import BertConfig, BertEncoder
from jaxrag.models.bert.released_sidr import is_released, read_released, released_first
from jaxrag.models.bert.towers import (
    SIDES,
    Towers,
    has_towers,
    load_both,
    tokenizer_path,
    write_towers,
)
from jaxrag.models.checkpoint.files import fingerprint, read_config, read_tensors
from jaxrag.models.layers import LayerNorm
from jaxrag.models.precision import matmul_precision
from jaxrag.models.tokenizer import TOKENIZER_FILES, check_trained_with, load_tokenizer
from jaxrag.types import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_KEY = "sidr"  # field of config.json with the settings that a BERT does not have
_CHUNK = 16  # tokens of each text whose logits are in memory at once


def elu1p(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """elu(x) + 1: x + 1 above 0, exp(x) below; positive and increasing, with derivative 1 at 0."""
    # not `minimum(x, 0)`, whose derivative is 1/2 at a tie
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.where(x > 0, 0, x)))


def pooled_logits(
    hidden: Float[Array, "b t d"],
    table: Float[Array, "v d"],
    *,
    where: Bool[Array, "b t"],
    chunk: int = _CHUNK,
) -> Float[Array, "b v"]:
    """Maximum of each word's logits over the text's tokens, float32; -inf if there are no tokens.

    Only the logits of ``chunk`` tokens are in memory at a time. The gradient goes to the (first)
    token with the maximum, whose index is all that is saved for the backward pass.
    """
    b, t, d = hidden.shape
    parts = -(-t // chunk)
    hidden = jnp.pad(hidden, ((0, 0), (0, parts * chunk - t), (0, 0)))
    where = jnp.pad(where, ((0, 0), (0, parts * chunk - t)))
    hidden = hidden.reshape(b, parts, chunk, d).swapaxes(0, 1)
    return _pool(hidden, table, where.reshape(b, parts, chunk).swapaxes(0, 1))


@jax.custom_vjp
def _pool(
    hidden: Float[Array, "p b c d"], table: Float[Array, "v d"], where: Bool[Array, "p b c"]
) -> Float[Array, "b v"]:
    return _largest(hidden, table, where)[0]


def _largest(
    hidden: Float[Array, "p b c d"], table: Float[Array, "v d"], where: Bool[Array, "p b c"]
) -> tuple[Float[Array, "b v"], Int[Array, "b v"]]:
    """Maximum logits, and the index of the token that has each."""
    parts, b, chunk, _ = hidden.shape
    table = table.astype(hidden.dtype)

    def larger(state: tuple[Any, Any], part: tuple[Any, Any, Any]) -> tuple[tuple[Any, Any], None]:
        (most, at), (x, real, first) = state, part
        with matmul_precision(x.dtype):  # derivatives are traced outside of the network's context
            logits = jnp.einsum("bcd,vd->bcv", x, table, preferred_element_type=jnp.float32)
        logits = jnp.where(real[..., None], logits, -jnp.inf)
        new = logits.max(axis=1)
        at = jnp.where(new > most, first + logits.argmax(axis=1), at)
        return (jnp.maximum(most, new), at), None

    firsts = jnp.arange(parts) * chunk
    nothing = (
        jnp.full((b, len(table)), -jnp.inf, jnp.float32),
        jnp.zeros((b, len(table)), jnp.int32),
    )
    return jax.lax.scan(larger, nothing, (hidden, where, firsts))[0]


def _forward(hidden: Any, table: Any, where: Any) -> tuple[Any, tuple[Any, ...]]:
    most, at = _largest(hidden, table, where)
    return most, (hidden, table, most, at)


def _backward(saved: tuple[Any, ...], cotangent: Float[Array, "b v"]) -> tuple[Any, Any, None]:
    hidden, table, most, at = saved
    parts, _, chunk, _ = hidden.shape
    rounded = table.astype(hidden.dtype)  # a product of two dtypes is slow on every device
    cotangent = jnp.where(most > -jnp.inf, cotangent, 0.0)

    def add(total: Float[Array, "v d"], part: tuple[Any, Any]) -> tuple[Any, Float[Array, "b c d"]]:
        x, first = part
        chosen = at[:, None] == first + jnp.arange(chunk)[:, None]
        selected = jnp.where(chosen, cotangent[:, None], 0.0).astype(x.dtype)
        to_x = jnp.einsum("bcv,vd->bcd", selected, rounded, preferred_element_type=jnp.float32)
        total += jnp.einsum("bcv,bcd->vd", selected, x, preferred_element_type=jnp.float32)
        return total, to_x.astype(x.dtype)

    nothing = jnp.zeros(table.shape, jnp.float32)
    with matmul_precision(hidden.dtype):
        total, to_hidden = jax.lax.scan(add, nothing, (hidden, jnp.arange(parts) * chunk))
    return to_hidden, total.astype(table.dtype), None


_pool.defvjp(_forward, _backward)


class SidrNetwork(nn.Module):
    """E(x) of texts, float32 [b, v - first].

    Attributes:
      dtype: of computation; norms and pooling are always float32.
      first: the first token id of the vocabulary that is used.
      masked: whether padding is excluded from the pooling, as it is not in the released code.
      dropout: of the BERT in training.
    """

    config: BertConfig
    dtype: Any = jnp.float32
    first: int = 999
    masked: bool = True
    dropout: float = 0.0

    @nn.compact
    def __call__(
        self, ids: Int[Array, "b t"], segments: Int[Array, "b t"], *, where: Bool[Array, "b t"]
    ) -> Float[Array, "b v"]:
        body = BertEncoder(self.config, self.dtype, dropout=self.dropout, name="bert")
        hidden: Any = body(ids, segments, where=where)
        x = LayerNorm(self.config.layer_norm_eps, name="norm")(hidden)
        table = body.variables["params"]["embeddings"]["word_embeddings"]["weight"][self.first :]
        with matmul_precision(self.dtype):
            pooled = pooled_logits(x, table, where=where if self.masked else where | True)
        return elu1p(pooled)


def bag_of_tokens(
    ids: Int[Array, "b t"], *, where: Bool[Array, "b t"], vocabulary: int, first: int = 999
) -> Float[Array, "b v"]:
    """T(x): 1 at the text's tokens, else 0; ids below ``first`` are excluded."""
    size = vocabulary - first
    places = jnp.where(where & (ids >= first), ids - first, size)  # out of range is dropped
    rows = jnp.arange(len(ids))[:, None]
    return jnp.zeros((len(ids), size), jnp.float32).at[rows, places].set(1.0, mode="drop")


def keep_top(
    dense: Float[Array, "b v"], k: int, *, tokens: Float[Array, "b v"] | None = None
) -> Float[Array, "b v"]:
    """E(x) with all but its k largest entries set to zero; of equal entries the first are kept.

    ``tokens``, T(x), marks entries that are kept besides.
    """
    _, places = jax.lax.top_k(dense, min(k, dense.shape[-1]))
    rows = jnp.arange(len(dense))[:, None]
    entries = jnp.zeros(dense.shape, jnp.bool_).at[rows, places].set(True)
    if tokens is not None:
        entries |= tokens > 0
    return jnp.where(entries, dense, 0.0)


def load_sidr(
    path: Path,
    *,
    dtype: jnp.dtype,
    first: int | None = None,
    scale: float = 1.0,
) -> tuple[SidrNetwork, dict[str, Any]]:
    """A network and its parameters; a plain BERT gives the initial parameters of a training.

    Args:
      dtype: of computation and of matrices.
      scale: initial weight of the last norm; below 1 for a BERT whose logits are large.
      first: see `SidrNetwork`; None uses the checkpoint's setting or the default.

    InputError if it is no BERT, is incomplete, or does not fit its config.
    """
    config = read_config(path)
    tensors = modern_names(read_tensors(path), "bert", body="bert.")
    if "norm.weight" not in tensors and _KEY not in config:
        size = read_bert_config(config, source=path).hidden_size
        tensors["norm.weight"] = np.full(size, scale, np.float32)
        tensors["norm.bias"] = np.zeros(size, np.float32)
    settings = {"first": SidrNetwork.first, "masked": SidrNetwork.masked, **_settings(config, path)}
    first = int(settings["first"]) if first is None else first
    return _build(path, config, tensors, dtype=dtype, first=first, masked=bool(settings["masked"]))


def _build(
    path: Path,
    raw_config: dict[str, Any],
    tensors: dict[str, np.ndarray],
    *,
    dtype: jnp.dtype,
    first: int,
    masked: bool = True,
) -> tuple[SidrNetwork, dict[str, Any]]:
    """A network and its parameters, checked against its config."""
    config = read_bert_config(raw_config, source=path)
    if config.family != "bert":
        raise InputError(f"{path}: SiDR is built on BERT, this is {config.family!r}.")
    if not 0 <= first < config.vocab_size:
        raise InputError(
            f"{path}: first is {first}, but the vocabulary has {config.vocab_size} tokens; give "
            "the id of the first token after the special and unused ones."
        )
    module = SidrNetwork(config, dtype, first, masked)
    ignore = (BUFFERS, *HEADS, *(rf"bert\.{head}" for head in HEADS))
    return module, parameters(module, tensors, path, ignore=ignore)


def load_towers(
    path: Path,
    *,
    dtype: jnp.dtype,
    shared: bool = False,
    first: int | None = None,
    scale: float = 1.0,
) -> tuple[SidrNetwork, Towers]:
    """The network and float32 parameters of both towers, for questions and passages.

    Args:
      path: written by `write_sidr`, or by SiDR's authors; or a BERT, from which both towers begin.
      dtype: of computation.
      shared: whether a BERT becomes one tower for both.
      first, scale: as in `load_sidr`.

    InputError as `load_sidr`; also for two towers with different settings.
    """
    float32 = jnp.dtype("float32")
    if is_released(path):
        released = read_released(path, first=SidrNetwork.first if first is None else first)
        loaded = {
            side: _build(path, released.config, tensors, dtype=float32, first=released.first)
            for side, tensors in released.towers.items()
        }
        module = next(iter(loaded.values()))[0]
        return module.clone(dtype=dtype), {side: params for side, (_, params) in loaded.items()}
    if not has_towers(path):
        module, params = load_sidr(path, dtype=float32, first=first, scale=scale)
        sides = ("both",) if shared or is_trained(path) else SIDES
        return module.clone(dtype=dtype), dict.fromkeys(sides, params)
    module, towers = load_both(path, partial(load_sidr, dtype=float32, first=first))
    return module.clone(dtype=dtype), towers


def is_trained(path: Path) -> bool:
    """Whether a checkpoint is a SiDR, not a plain BERT from which training begins."""
    return has_towers(path) or _KEY in read_config(path) or is_released(path)


def first_token(path: Path) -> int:
    """`SidrNetwork.first` of the checkpoint at ``path``, read without its weights."""
    config = read_config(tokenizer_path(path))
    default = released_first(config, SidrNetwork.first)
    return int(_settings(config, path).get("first", default))


def load_sidr_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of the SiDR, or of the BERT, at ``path``.

    InputError if it is not the one of the training, or has tokens that the network lacks.
    """
    directory = tokenizer_path(path)
    config = read_config(directory)
    if trained_with := _settings(config, directory).get("tokenizer"):
        check_trained_with(directory, trained_with, results="vectors")
    tokenizer = load_tokenizer(directory)
    rows = config.get("vocab_size")
    if isinstance(rows, int) and len(tokenizer) > rows:
        raise InputError(
            f"{directory}: the tokenizer knows {len(tokenizer)} tokens, the network {rows}: they "
            "are of different models, or the tokenizer's settings are lost. Restore "
            f"{' and '.join(TOKENIZER_FILES)}."
        )
    return tokenizer


def _settings(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """What `write_sidr` has added to a config; nothing for a BERT."""
    settings = config.get(_KEY, {})
    if not isinstance(settings, dict):
        raise InputError(
            f"{path}: the field {_KEY!r} of config.json is {settings!r:.40}, not an object."
        )
    return settings


def towers_fingerprint(path: Path) -> str:
    """Hex digest of the weights, settings and tokenizer of a SiDR."""
    if not has_towers(path):
        return fingerprint(path)
    return "-".join(fingerprint(path / side) for side in SIDES)


def write_sidr(directory: Path, module: SidrNetwork, params: Towers, *, begun_with: Path) -> Path:
    """Writes a SiDR for `load_towers`, see `jaxrag.models.bert.towers.write_towers`."""
    source = tokenizer_path(begun_with)
    config = read_released(source, first=module.first).config if is_released(source) else None
    settings = {_KEY: {"first": module.first, "masked": module.masked}}
    return write_towers(directory, params, begun_with=source, config=config, settings=settings)
