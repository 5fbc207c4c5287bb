"""A ranker in use: the scores are the network's, pair by pair, and its identity tells it apart."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.methods.ars.ranker import scorer as rankers
from jaxrag.models.bert.rewrite_ranker import untrained_ranker, write_ranker
from jaxrag.types import InputError
from tests.models.bert import small_bert

BERT = small_bert.BERT | {"num_hidden_layers": 1}  # compiles in half the time
QUESTION = "the capital of france"
REWRITES = ["paris", "the capital of france is paris", "money", "a cat sat on the mat " * 9]


@pytest.fixture
def start(tmp_path: Path) -> str:
    return str(small_bert.write(tmp_path / "start", BERT, classifier=False))


@pytest.fixture
def trained(start: str, tmp_path: Path) -> str:
    float32 = jnp.dtype("float32")
    loaded = untrained_ranker(Path(start), dtype=float32, pooling="mean", max_length=16, seed=3)
    return str(write_ranker(tmp_path / "trained", loaded, begun_with=Path(start)))


def test_a_score_is_the_network_s_and_independent_of_the_batch(trained: str) -> None:
    ranker = rankers.load(trained)
    found = ranker.score([QUESTION] * 4, REWRITES)
    assert found.shape == (4,) and found.dtype == np.float32 and len({*found.tolist()}) == 4
    module: Any = ranker.module
    apply = jax.jit(module.apply)
    for rewrite, score in zip(REWRITES, found, strict=True):
        cut = ranker.tokenizer(QUESTION, rewrite, truncation="longest_first", max_length=16)
        ids, segments = np.array([cut.input_ids]), np.array([cut.token_type_ids])
        assert ids.shape[1] <= 16 and {*segments[0].tolist()} == {0, 1}
        wanted = apply({"params": ranker.params}, ids, segments, where=ids > 0)
        np.testing.assert_allclose(score, wanted[0, 0], atol=1e-6)
    np.testing.assert_array_equal(ranker.score([QUESTION], REWRITES[1:2]), found[1:2])
    swapped = ranker.score(REWRITES[:1], [QUESTION])
    assert swapped[0] != found[0]
    assert ranker.score([], []).shape == (0,)


def test_identity_depends_on_all_that_determines_scores(start: str, trained: str) -> None:
    begun = rankers.begin(start, max_length=16)
    made = [
        begun,
        rankers.begin(start, max_length=24),
        rankers.begin(start, max_length=16, seed=1),
        rankers.begin(start, max_length=16, pooling="mean"),
        rankers.begin(start, max_length=16, dtype="bfloat16"),
        rankers.load(trained),
        rankers.load(trained, dtype="bfloat16"),
        rankers.with_params(begun, begun.params, "one"),
        rankers.with_params(begun, begun.params, "two"),
    ]
    assert len({ranker.identity for ranker in made}) == len(made)
    assert rankers.load(trained).identity == made[5].identity


def test_invalid_input_is_refused(start: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a trained ranker"):
        rankers.load(start)
    with pytest.raises(InputError, match="No checkpoint at"):
        rankers.load(str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="1 queries but 2 passages"):
        rankers.begin(start, max_length=16).score([QUESTION], REWRITES[:2])
    few = BERT | {"vocab_size": 10}  # 22 words are in the tokenizer
    path = small_bert.write(tmp_path / "few", few, classifier=False)
    with pytest.raises(InputError, match="the tokenizer knows 22 tokens, the network 10"):
        rankers.begin(str(path), max_length=16)
