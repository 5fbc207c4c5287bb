"""The ranker's network, and what it is on disk."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.bert.rewrite_ranker import (
    RankerNetwork,
    dropout_noise,
    load_ranker,
    untrained_ranker,
    write_ranker,
)
from jaxrag.models.checkpoint.files import read_tensors
from jaxrag.types import InputError
from tests.models.bert import small_bert

FLOAT32 = jnp.dtype("float32")
IDS = np.array([[2, 5, 6, 3, 7, 3], [2, 9, 3, 11, 3, 0]], np.int32)
SEGMENTS = np.array([[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0]], np.int32)
WHERE = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]], bool)


@pytest.fixture
def start(tmp_path: Path) -> Path:
    return small_bert.write(tmp_path / "start", small_bert.BERT, classifier=False)


@pytest.fixture
def trained(start: Path, tmp_path: Path) -> Path:
    loaded = untrained_ranker(start, dtype=FLOAT32, pooling="mean", max_length=20, seed=3)
    return write_ranker(tmp_path / "trained", loaded, begun_with=start)


@partial(jax.jit, static_argnames="module")
def score(module: RankerNetwork, params: Any, ids: Any, segments: Any, **more: Any) -> jax.Array:
    return module.apply({"params": params}, ids, segments, where=WHERE, **more)


def apply(module: RankerNetwork, params: Any, **more: Any) -> np.ndarray:
    return np.asarray(score(module, params, IDS, SEGMENTS, **more))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("kind", sorted(small_bert.CONFIGS))
def test_scores_equal_the_float64_reference(kind: str, pooling: Any, tmp_path: Path) -> None:
    config = small_bert.CONFIGS[kind]
    path = small_bert.write(tmp_path, config, classifier=False)
    module, params, _ = untrained_ranker(
        path, dtype=FLOAT32, pooling=pooling, max_length=20, seed=1
    )
    segments = np.where(config["type_vocab_size"] == 1, 0, SEGMENTS)
    ids = np.where(WHERE, IDS, config["pad_token_id"])
    found = score(module, params, ids, segments)
    hidden = small_bert.hidden_states(dict(read_tensors(path)), config, ids, segments, WHERE)
    means = np.stack([hidden[0].mean(0), hidden[1, :5].mean(0)])
    head = params["classifier"]
    wanted = (hidden[:, 0] if pooling == "cls" else means) @ np.float64(head["weight"]).T
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    assert found.shape == (2, 1) and np.ptp(found) > 1e-3


def test_the_pooler_is_read_and_written(tmp_path: Path) -> None:
    path = small_bert.write(tmp_path / "start", small_bert.BERT, classifier=True)
    begun = untrained_ranker(path, dtype=FLOAT32, pooling="pooler", max_length=20, seed=3)
    tensors = dict(read_tensors(path))
    first = small_bert.hidden_states(tensors, small_bert.BERT, IDS, SEGMENTS, WHERE)[:, 0]
    weight, bias = (tensors[f"bert.pooler.dense.{kind}"] for kind in ("weight", "bias"))
    head = np.float64(begun.params["classifier"]["weight"])
    wanted = np.tanh(first @ np.float64(weight).T + bias) @ head.T
    np.testing.assert_allclose(apply(begun.module, begun.params), wanted, atol=2e-5)
    read = load_ranker(write_ranker(tmp_path / "ranker", begun, begun_with=path), dtype=FLOAT32)
    assert read.module == begun.module and read.module.pooling == "pooler"
    jax.tree.map(np.testing.assert_array_equal, read.params, begun.params)


def test_a_missing_pooler_is_no_random_one(start: Path) -> None:
    with pytest.raises(InputError, match=r"has no pooler.*choose 'cls' or 'mean'"):
        untrained_ranker(start, dtype=FLOAT32, pooling="pooler", max_length=20)


def test_dropped_units_have_no_effect(start: Path) -> None:
    module, params, _ = untrained_ranker(start, dtype=FLOAT32, max_length=20)
    whole = apply(module, params)
    np.testing.assert_array_equal(apply(module, params, noise=np.ones((2, 24), np.float32)), whole)
    assert np.all(apply(module, params, noise=np.zeros((2, 24), np.float32)) == 0)  # bias is 0
    halves = np.float32(2 * (np.arange(24) < 12)), np.float32(2 * (np.arange(24) >= 12))
    parts = [apply(module, params, noise=np.tile(half, (2, 1))) for half in halves]
    np.testing.assert_allclose(sum(parts) / 2, whole, atol=1e-6)


def test_noise_is_zero_or_larger_and_one_on_average() -> None:
    found = np.asarray(dropout_noise(jax.random.key(1), (200, 300), 0.1))
    assert {*np.unique(found)} == {np.float32(0), np.float32(1 / 0.9)}
    # 60,000 draws: the share of zeros has a deviation of sqrt(0.09 / 60000) = 0.0012
    assert abs((found == 0).mean() - 0.1) < 5 * 0.0012
    again = jax.jit(lambda key: dropout_noise(key, (200, 300), 0.1))(jax.random.key(1))
    np.testing.assert_array_equal(found, again)


def test_training_starts_from_the_encoder_and_a_seeded_head(start: Path) -> None:
    module, params, length = untrained_ranker(
        start, dtype=jnp.dtype("bfloat16"), max_length=40, seed=5
    )
    assert length == 40
    tensors = read_tensors(start)
    word = params["bert"]["embeddings"]["word_embeddings"]["weight"]
    np.testing.assert_array_equal(word, tensors["embeddings.word_embeddings.weight"])
    assert module.dtype == jnp.bfloat16 and word.dtype == jnp.float32
    again, other = (
        untrained_ranker(start, dtype=FLOAT32, max_length=40, seed=seed).params for seed in (5, 6)
    )
    head = params["classifier"]["weight"]
    np.testing.assert_array_equal(head, again["classifier"]["weight"])
    assert np.all(head != other["classifier"]["weight"]) and 0.01 < np.std(head) < 0.03
    assert np.all(params["classifier"]["bias"] == 0)


def test_heads_and_poolers_of_the_initial_checkpoint_are_ignored(tmp_path: Path) -> None:
    path = small_bert.write(tmp_path, small_bert.BERT, classifier=True)
    assert {"bert.pooler.dense.weight", "classifier.weight"} <= {*read_tensors(path)}
    params = untrained_ranker(path, dtype=FLOAT32, max_length=40, seed=2).params
    assert set(params) == {"bert", "classifier"} and "pooler" not in params["bert"]
    held = read_tensors(path)["classifier.weight"]
    assert not np.array_equal(params["classifier"]["weight"], held)


def test_a_saved_ranker_is_read_back(start: Path, trained: Path) -> None:
    begun = untrained_ranker(start, dtype=FLOAT32, pooling="mean", max_length=20, seed=3)
    read = load_ranker(trained, dtype=FLOAT32)
    assert (read.module, read.max_length) == (begun.module, 20)
    jax.tree.map(np.testing.assert_array_equal, read.params, begun.params)
    # again, over what is there, and from what it wrote itself
    other = begun._replace(params=jax.tree.map(lambda x: x + 1, begun.params))
    write_ranker(trained, other, begun_with=trained)
    read = load_ranker(trained, dtype=FLOAT32)
    jax.tree.map(np.testing.assert_array_equal, read.params, other.params)
    assert [path.name for path in trained.parent.iterdir() if "trained." in path.name] == []


def test_another_tokenizer_is_refused(trained: Path, tmp_path: Path) -> None:
    file = trained / "tokenizer.json"
    told = json.loads(file.read_text())
    vocabulary = told["model"]["vocab"]
    vocabulary["cat"], vocabulary["mat"] = vocabulary["mat"], vocabulary["cat"]
    file.write_text(json.dumps(told))
    with pytest.raises(InputError, match="trained with another tokenizer") as error:
        load_ranker(trained, dtype=FLOAT32)
    assert str(trained) in str(error.value) and "train again" in str(error.value)
    file.unlink()
    with pytest.raises(InputError, match=r"tokenizer's file tokenizer\.json cannot be read"):
        load_ranker(trained, dtype=FLOAT32)


def changed(trained: Path, **more: Any) -> None:
    file = trained / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **more}))


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"num_hidden_layers": 1}, r"surplus: bert\.encoder\.layer\.1"),
        ({"ranker": None}, "is not a trained ranker"),
        ({"ranker": {"pooling": "mean"}}, "lacks max_length, tokenizer"),
    ],
)
def test_other_networks_are_refused(more: Any, told: str, trained: Path) -> None:
    changed(trained, **more)
    with pytest.raises(InputError, match=told):
        load_ranker(trained, dtype=FLOAT32)


def test_invalid_checkpoints_and_settings_are_refused(start, trained, tmp_path) -> None:
    with pytest.raises(InputError, match="is a trained ranker; training begins with a plain BERT"):
        untrained_ranker(trained, dtype=FLOAT32)
    for length in (4, 65):
        with pytest.raises(InputError, match=f"max_length is {length}; it must be from 5 to 64"):
            untrained_ranker(start, dtype=FLOAT32, max_length=length)
    wrong: Any = "max"
    with pytest.raises(InputError, match="pooling is 'max'"):
        untrained_ranker(start, dtype=FLOAT32, pooling=wrong, max_length=20)
