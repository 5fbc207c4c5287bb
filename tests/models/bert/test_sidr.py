from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.bert.sidr import (
    SidrNetwork,
    bag_of_tokens,
    elu1p,
    keep_top,
    load_sidr,
    pooled_logits,
)
from jaxrag.models.checkpoint.files import write_checkpoint
from jaxrag.types import InputError
from tests.models.bert import small_bert
from tests.models.bert.small_bert import BERT, XLM_ROBERTA

FIRST = 7
FLOAT32 = jnp.dtype("float32")


@partial(jax.jit, static_argnames="module")
def embed(module: SidrNetwork, params: Any, ids: Any, segments: Any, where: Any) -> jax.Array:
    return module.apply({"params": params}, ids, segments, where=where)


@pytest.fixture
def trained(tmp_path: Path) -> tuple[SidrNetwork, Any, dict[str, np.ndarray]]:
    """A tower whose last norm is not the one that training begins with."""
    random = np.random.default_rng(3)
    tensors = small_bert.random_tensors(BERT, classifier=False)
    tensors = {f"bert.{name.removeprefix('bert.')}": array for name, array in tensors.items()}
    tensors["norm.weight"] = np.float32(random.normal(1, 0.3, BERT["hidden_size"]))
    tensors["norm.bias"] = np.float32(random.normal(0, 0.3, BERT["hidden_size"]))
    path = write_checkpoint(tmp_path / "trained", BERT, tensors)
    module, params = load_sidr(path, dtype=FLOAT32, first=FIRST)
    return module, params, tensors


def texts(lengths: tuple[int, ...] = (20, 33, 1, 5)) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    where = np.arange(max(lengths)) < np.array(lengths)[:, None]
    ids = np.where(where, random.integers(4, BERT["vocab_size"], where.shape), 0)
    return ids, np.where(where, random.integers(0, 2, where.shape), 0), where


def reference(
    tensors: dict[str, np.ndarray],
    ids: np.ndarray,
    segments: np.ndarray,
    where: np.ndarray,
    config: dict[str, Any] = BERT,
) -> np.ndarray:
    """E(x) in float64: activated before the pooling, as the definition has it."""
    hidden = small_bert.hidden_states(tensors, config, ids, segments, where)
    centred = hidden - hidden.mean(-1, keepdims=True)
    hidden = centred / np.sqrt(hidden.var(-1, keepdims=True) + config["layer_norm_eps"])
    hidden = hidden * tensors["norm.weight"] + tensors["norm.bias"]
    logits = hidden @ np.float64(tensors["bert.embeddings.word_embeddings.weight"][FIRST:]).T
    weights = np.where(logits > 0, logits + 1, np.exp(np.minimum(logits, 0)))
    return np.where(where[..., None], weights, 0).max(1)


def test_elu1p_by_hand() -> None:
    # at -1: 1/e; above 0 a line; it goes through 1 at 0, with slope 1 from both sides
    np.testing.assert_allclose(
        elu1p(jnp.array([-1.0, 0.0, 2.0, -200.0])), [0.3678794, 1, 3, 0], atol=1e-7
    )
    slopes = jax.vmap(jax.grad(elu1p))(jnp.array([-1.0, -1e-6, 0.0, -0.0, 1e-6, 300.0]))
    np.testing.assert_allclose(slopes, [0.3678794, 1, 1, 1, 1, 1], atol=2e-6)


def test_vectors_equal_the_float64_reference(trained: Any) -> None:
    module, params, tensors = trained
    ids, segments, where = texts()
    found = embed(module, params, ids, segments, where)
    assert found.dtype == jnp.float32 and found.shape == (4, BERT["vocab_size"] - FIRST)
    want = reference(tensors, ids, segments, where)
    np.testing.assert_allclose(found, want, atol=2e-5)


def test_padding_changes_nothing_if_masked(trained: Any) -> None:
    module, params, _ = trained
    ids, segments, where = texts((9,))
    wider = [np.pad(array, ((0, 0), (0, 30))) for array in (ids, segments, where)]

    def vectors(module: SidrNetwork, ids: Any, segments: Any, where: Any) -> np.ndarray:
        return np.asarray(embed(module, params, ids, segments, where))

    np.testing.assert_allclose(
        vectors(module, *wider), vectors(module, ids, segments, where), atol=1e-6
    )
    released = module.clone(masked=False)
    same = vectors(released, ids, segments, where)
    np.testing.assert_array_equal(same, vectors(module, ids, segments, where))
    assert (vectors(released, *wider) - same).max() > 0.01


def test_gradients_do_not_depend_on_the_chunk() -> None:
    random = np.random.default_rng(0)
    hidden, table = random.normal(size=(3, 21, 6)), random.normal(size=(11, 6))
    where = np.arange(21) < np.array([21, 4, 0])[:, None]

    def plain(hidden: Any, table: Any) -> Any:
        logits = jnp.where(where[..., None], hidden @ table.T, -jnp.inf)
        return elu1p(logits.max(1)).sum()

    def chunked(hidden: Any, table: Any, chunk: int) -> Any:
        return elu1p(pooled_logits(hidden, table, where=jnp.array(where), chunk=chunk)).sum()

    given = jnp.float32(hidden), jnp.float32(table)
    want = jax.value_and_grad(plain, argnums=(0, 1))(*given)
    for chunk in (1, 8, 64):
        found = jax.jit(jax.value_and_grad(partial(chunked, chunk=chunk), (0, 1)))(*given)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, want)


def test_a_gradient_goes_to_the_first_of_equal_tokens_and_to_no_padding() -> None:
    # of the first text all tokens are alike, the second has none
    hidden, table = jnp.ones((2, 9, 3)), jnp.arange(6.0).reshape(2, 3)
    where = jnp.arange(9) < jnp.array([[9], [0]])
    for chunk in (4, 9):
        pool = partial(pooled_logits, where=where, chunk=chunk)
        found, back = jax.vjp(pool, hidden, table)
        np.testing.assert_array_equal(found, [[3, 12], [-np.inf, -np.inf]])
        to_hidden, to_table = back(jnp.ones((2, 2)))
        np.testing.assert_array_equal(to_hidden[0, 0], table.sum(0))
        assert not to_hidden[0, 1:].any() and not to_hidden[1].any()
        np.testing.assert_array_equal(to_table, jnp.ones((2, 3)))


def test_memory_does_not_grow_with_the_length_of_the_text() -> None:
    """Of 512 instead of 64 tokens: with their logits it would be 57 MB more."""

    def peak(t: int) -> int:
        def loss(hidden: Any, table: Any) -> Any:
            where = jnp.ones((4, t), jnp.bool_)
            return elu1p(pooled_logits(hidden, table, where=where)).sum()

        hidden = jax.ShapeDtypeStruct((4, t, 32), FLOAT32)
        table = jax.ShapeDtypeStruct((8000, 32), FLOAT32)
        compiled = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(hidden, table).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    states = 4 * (512 - 64) * 32 * 4  # further hidden states
    assert peak(512) - peak(64) <= 3 * states


def test_bags_hold_each_word_once() -> None:
    ids = jnp.array([[101, 5, 9, 9, 8, 0], [7, 11, 6, 11, 11, 11]])
    where = jnp.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]], jnp.bool_)
    found = bag_of_tokens(ids, where=where, vocabulary=102, first=7)
    assert found.shape == (2, 95)
    assert np.flatnonzero(found[0]).tolist() == [1, 2, 94]  # 8, 9, 101; 5 is below the first
    assert np.flatnonzero(found[1]).tolist() == [0, 4]  # 7 and 11; what is masked does not count
    assert set(np.unique(found)) == {0.0, 1.0}


def test_sparsified_vectors_keep_the_largest_and_the_text_s_own_entries() -> None:
    dense = jnp.array([[0.5, 3.0, 2.0, 2.0, 0.1], [1.0, 1.0, 1.0, 4.0, 2.0]])
    np.testing.assert_array_equal(keep_top(dense, 2), [[0, 3, 2, 0, 0], [0, 0, 0, 4, 2]])
    tokens = jnp.array([[1.0, 0, 0, 0, 0], [0, 0, 0, 1.0, 0]])
    np.testing.assert_array_equal(
        keep_top(dense, 2, tokens=tokens), [[0.5, 3, 2, 0, 0], [0, 0, 0, 4, 2]]
    )
    np.testing.assert_array_equal(keep_top(dense, 99), dense)


def test_a_plain_bert_gives_the_initial_parameters(tmp_path: Path) -> None:
    tensors = small_bert.random_tensors(BERT, classifier=False)
    module, params = load_sidr(
        write_checkpoint(tmp_path, BERT, tensors), dtype=FLOAT32, first=FIRST
    )
    assert (params["norm"]["weight"] == 1).all() and (params["norm"]["bias"] == 0).all()
    ids, segments, where = texts((3, 6))
    assert np.isfinite(embed(module, params, ids, segments, where)).all()


def test_other_checkpoints_are_refused(tmp_path: Path) -> None:
    def checkpoint(config: dict[str, Any], name: str) -> Path:
        tensors = small_bert.random_tensors(config, classifier=False)
        return write_checkpoint(tmp_path / name, config, tensors)

    with pytest.raises(InputError, match="SiDR is built on BERT"):
        load_sidr(checkpoint(XLM_ROBERTA, "roberta"), dtype=FLOAT32)
    with pytest.raises(InputError, match="first is 999, but the vocabulary has 40 tokens"):
        load_sidr(checkpoint(BERT, "bert"), dtype=FLOAT32)
