"""SiDR's encoder against float64, its sparsity, its towers on disk."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.retrieval.corpus.builds import WHOLE
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.types import InputError, Passage
from tests.models.bert import small_bert
from tests.models.bert.test_sidr import FIRST
from tests.retrieval.fakes import FakePassages
from tests.retrieval.sidr import small_sidr
from tests.retrieval.sidr.small_sidr import DIMENSION, own, tokens, vector

LENGTHS: dict[str, Any] = {"query_length": 32, "passage_length": 48}


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    return small_sidr.write(tmp_path_factory.mktemp("sidr"))


@pytest.fixture(scope="module")
def encoder(directory) -> SidrEncoder:
    """One that leaves nothing out."""
    return SidrEncoder.load(str(directory), top=DIMENSION, **LENGTHS)


def kept(full: np.ndarray, top: int, also: np.ndarray) -> np.ndarray:
    """The ``top`` largest entries and those of ``also``."""
    mask = np.isin(np.arange(len(full)), np.argsort(-full, kind="stable")[:top]) | (also > 0)
    return np.where(mask, full, 0)


@pytest.mark.parametrize("own_tokens", [True, False])
def test_vectors_keep_the_largest_and_the_text_s_own_entries(directory, own_tokens):
    encoder = SidrEncoder.load(str(directory), top=3, own_tokens=own_tokens, **LENGTHS)
    texts, passages = small_sidr.texts(6), small_sidr.passages(6)
    for text, found in zip(texts, encoder.embed(texts), strict=True):
        ids = tokens(text)
        want = kept(vector(directory / "query", ids), 3, own(ids) * own_tokens)
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)
        assert (found > 0).sum() >= 3
    sparse = encoder.embed_passages(passages)
    assert sparse.ids.shape == sparse.values.shape == (6, encoder.entries)
    assert encoder.entries == (DIMENSION if own_tokens else 3)  # at most 3 + 48 of them, or 3
    for passage, found in zip(passages, small_sidr.dense(sparse), strict=True):
        ids = tokens(encoder.passage_text(passage))
        want = kept(vector(directory / "passage", ids), 3, own(ids) * own_tokens)
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)
    assert (np.diff(sparse.values, axis=1) <= 0).all()  # largest first
    np.testing.assert_array_equal(sparse.ids[sparse.values == 0], DIMENSION)


def test_a_vector_does_not_depend_on_the_batch(encoder):
    texts, passages = small_sidr.texts(40), small_sidr.passages(40)
    order = np.random.default_rng(5).permutation(40)
    whole, sparse = encoder.embed(texts), encoder.embed_passages(passages)
    np.testing.assert_array_equal(encoder.embed([texts[i] for i in order]), whole[order])
    moved = encoder.embed_passages([passages[i] for i in order])
    np.testing.assert_array_equal(moved.ids, sparse.ids[order])
    np.testing.assert_array_equal(moved.values, sparse.values[order])
    for i in (0, 13, 39):
        np.testing.assert_array_equal(encoder.embed([texts[i]])[0], whole[i])
        np.testing.assert_array_equal(encoder.embed_passages([passages[i]]).values[0],
                                      sparse.values[i])  # fmt: skip


def test_titles_and_lengths(directory):
    encoder = SidrEncoder.load(str(directory), top=4, query_length=5, passage_length=7)
    assert encoder.passage_text(Passage("1", "Cat", "on rug")) == "Cat [SEP] on rug"
    assert encoder.passage_text(Passage("1", "", "on rug")) == "on rug"
    # 5 tokens are [CLS], three words, [SEP]; of 7 the title and its separator take two
    np.testing.assert_array_equal(
        encoder.embed(["cat sat on mat rug bank"]), encoder.embed(["cat sat on"])
    )
    cut, whole = encoder.embed_passages(
        [Passage("1", "cat", "sat on mat"), Passage("2", "cat", "sat on mat rug bank")]
    ).values
    np.testing.assert_array_equal(cut, whole)


def test_sets_of_tokens(encoder):
    # the first token that counts is the fourth word: "feline"
    assert small_bert.WORDS[FIRST - 4] == "feline"
    found = encoder.token_vectors(["the feline sat on the feline", "the unknowable cat", "rome"])
    assert found.shape == (3, DIMENSION)
    assert [np.flatnonzero(row).tolist() for row in found] == [[0, 1, 2], [], [DIMENSION - 1]]
    assert set(np.unique(found)) == {0.0, 1.0}


def test_identity_depends_on_all_that_determines_vectors(directory, encoder, tmp_path):
    def identity(spec=directory, **changes):
        settings = {"top": DIMENSION, **LENGTHS, **changes}
        return SidrEncoder.load(str(spec), **settings).identity

    same = shutil.copytree(directory, tmp_path / "copy")
    assert identity(same) == encoder.identity
    others = [identity(top=3), identity(own_tokens=False), identity(query_length=9)]
    others += [
        identity(passage_length=9),
        identity(dtype="bfloat16"),
        identity(top=2, first=FIRST + 1),
    ]
    assert identity(scale=0.5) == encoder.identity  # a trained one has its own
    bert, _, _ = small_sidr.parts(tmp_path / "bert")
    others += [identity(bert, first=FIRST), identity(bert, first=FIRST, scale=0.5)]
    others += [identity(small_sidr.write(tmp_path, seed=1))]
    moved = encoder.with_params(encoder.params, "step 7")
    others += [moved.identity, encoder.with_params(encoder.params, "step 8").identity]
    assert len({encoder.identity, *others}) == 1 + len(others)
    np.testing.assert_array_equal(moved.embed(["rome"]), encoder.embed(["rome"]))


def test_one_tower_embeds_both(tmp_path):
    path = small_sidr.write(tmp_path, shared=True)
    encoder = SidrEncoder.load(str(path), top=DIMENSION, **LENGTHS)
    question = encoder.embed(["cat sat on mat"])
    passage = encoder.embed_passages([Passage("1", "", "cat sat on mat")])
    np.testing.assert_array_equal(small_sidr.dense(passage), question)


def _without_a_tensor(path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    file = path / "passage" / "model.safetensors"
    tensors = load_file(file)
    del tensors["norm.weight"]  # which a plain BERT may lack, but not a trained SiDR
    save_file(tensors, file)


def _without_settings(path: Path) -> None:
    (path / "query" / "tokenizer_config.json").write_text("{}")


def _as_before_tokenizers_were_recorded(path: Path) -> None:
    for side in ("query", "passage"):
        file = path / side / "config.json"
        config = json.loads(file.read_text())
        del config["sidr"]["tokenizer"]
        file.write_text(json.dumps(config))
    _without_settings(path)


@pytest.mark.parametrize(
    "harm, said",
    [
        (_without_settings, "query was trained with another tokenizer .* Restore tokenizer.json"),
        (
            lambda path: (path / "query" / "tokenizer_config.json").unlink(),
            "the tokenizer's file tokenizer_config.json cannot be read",
        ),
        (
            _as_before_tokenizers_were_recorded,
            f"knows {len(small_sidr.WORDS) + 5} tokens, the network {len(small_sidr.WORDS) + 4}",
        ),
        (_without_a_tensor, r"(?s)passage does not fit.*missing: norm\.weight"),
    ],
)
def test_damaged_checkpoints_are_refused(directory, tmp_path, harm, said):
    path = shutil.copytree(directory, tmp_path / "harmed")
    harm(path)
    with pytest.raises(InputError, match=said):
        SidrEncoder.load(str(path), top=DIMENSION, **LENGTHS)


def test_an_index_of_tokens_is_not_built_with_another_tokenizer(directory, tmp_path):
    path = shutil.copytree(directory, tmp_path / "harmed")
    cache, corpus = tmp_path / "cache", FakePassages(3)
    assert Sidr(str(path)).status(corpus, cache).state != "built"
    _without_settings(path)
    with pytest.raises(InputError, match="query was trained with another tokenizer"):
        Sidr(str(path)).build(corpus, cache, WHOLE)
    assert not cache.exists()


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"top": 0}, f"top is 0; .* has 1 to {DIMENSION} entries"),
        ({"top": DIMENSION + 1}, f"has 1 to {DIMENSION}"),
        ({"top": 2, "query_length": 2}, "query_length is 2; .* allows 3 to 64 tokens"),
        ({"top": 2, "passage_length": 65}, "passage_length is 65"),
    ],
)
def test_invalid_settings_are_refused(directory, settings, said):
    with pytest.raises(InputError, match=said):
        SidrEncoder.load(str(directory), **{**LENGTHS, **settings})
