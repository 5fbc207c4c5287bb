"""SiDR's four searches against float64 by brute force, and what late search embeds."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.retrieval.sidr.bag_of_tokens import BagTokenizer
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.sidr.semi_parametric import PassageVectors, SidrIndex, late
from jaxrag.types import InputError, Ranking
from tests.models.bert.test_sidr import FIRST
from tests.retrieval.fakes import FakePassages, build_bag_of_tokens
from tests.retrieval.sidr import small_sidr
from tests.retrieval.sidr.small_sidr import own, tokens

COUNT = 60
QUESTIONS = small_sidr.texts(7, seed=11)


class Corpus(FakePassages):
    """Passages with titles."""

    def __init__(self) -> None:
        super().__init__(COUNT)
        self.rows = small_sidr.passages(COUNT)
        self.asked: list[int] = []

    def get(self, rows):
        self.asked += rows
        return super().get(rows)


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    return tmp_path_factory.mktemp("indexes")


@pytest.fixture(scope="module")
def encoder(where) -> SidrEncoder:
    path = str(small_sidr.write(where))
    return SidrEncoder.load(path, top=6, query_length=16, passage_length=24)


@pytest.fixture(scope="module")
def bags(where, encoder):
    tokenizer = BagTokenizer.of(encoder.tokenizer, first=FIRST, max_length=24)
    return build_bag_of_tokens(Corpus(), tokenizer, where / "bags")


@pytest.fixture(scope="module")
def vectors(where, encoder):
    return encoder.index(Corpus(), where / "vectors")


def of_passages(encoder, kind: str) -> np.ndarray:
    """E(d), as stored (in float16) or as embedded, or T(d), in float64 [n v]."""
    if kind == "tokens":
        shown = (encoder.passage_text(passage) for passage in Corpus().rows)
        return np.stack([own(tokens(text)) for text in shown])
    exact = small_sidr.dense(encoder.embed_passages(Corpus().rows))
    return exact.astype(np.float16).astype(np.float64) if kind == "stored" else exact


def ranked(scores: np.ndarray, k: int) -> list[Ranking]:
    """The best of scores [q n]; equal ones in the order of rows."""
    orders = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return [
        Ranking(tuple(map(int, order)), tuple(map(float, line[order])))
        for line, order in zip(scores, orders, strict=True)
    ]


@pytest.mark.parametrize("k", [5, COUNT + 9])
@pytest.mark.parametrize(
    "search, kind", [("beta", "tokens"), ("alpha", "stored"), ("parametric", "stored")]
)
def test_searches_of_the_whole_index(encoder, bags, vectors, search, kind, k):
    index = SidrIndex.make(
        encoder, Corpus(), bags if search == "beta" else vectors, search=search
    )  # fmt: skip
    if search == "alpha":
        queries = np.stack([own(tokens(text)) for text in QUESTIONS])
    else:
        queries = encoder.embed(QUESTIONS).astype(np.float64)
    assert isinstance(index, TextRetriever)
    found = index.search_texts(QUESTIONS, k)
    for one, want in zip(found, ranked(queries @ of_passages(encoder, kind).T, k), strict=True):
        assert one.ids == want.ids
        np.testing.assert_allclose(one.scores, want.scores, rtol=1e-14)
    assert index.vectors.embedded == 0


@pytest.mark.parametrize("m, k", [(1, 1), (5, 3), (COUNT + 9, COUNT + 9)])
def test_late_search_by_brute_force(encoder, bags, m, k):
    index = SidrIndex.make(encoder, Corpus(), bags, m=m)
    queries = encoder.embed(QUESTIONS).astype(np.float64)
    first = ranked(queries @ of_passages(encoder, "tokens").T, m)
    exact = queries @ of_passages(encoder, "embedded").T
    kept = np.full(exact.shape, -np.inf)
    for line, ranking, scores in zip(kept, first, exact, strict=True):
        line[list(ranking.ids)] = scores[list(ranking.ids)]
    found = index.search_texts(QUESTIONS, k)
    for one, want in zip(found, ranked(kept.astype(np.float32), min(k, m)), strict=True):
        assert one.ids == want.ids
        np.testing.assert_allclose(one.scores, want.scores, rtol=1e-6)
    assert [len(one.ids) for one in found] == [min(k, COUNT)] * len(QUESTIONS)


def test_a_ranking_does_not_depend_on_the_batch(encoder, bags, vectors):
    for search, index in (("late", bags), ("beta", bags), ("alpha", vectors)):
        whole = SidrIndex.make(encoder, Corpus(), index, search=search)
        together = whole.search_texts(QUESTIONS, 5)
        for text, ranking in zip(QUESTIONS[::-1], together[::-1], strict=True):
            fresh = SidrIndex.make(encoder, Corpus(), index, search=search)
            assert fresh.search_texts([text], 5) == [ranking]


def test_each_passage_is_embedded_once(encoder, bags):
    corpus = Corpus()
    index = SidrIndex.make(encoder, corpus, bags, m=8)
    found = index.search_texts(QUESTIONS, 8)
    rows = {row for ranking in found for row in ranking.ids}
    assert index.vectors.embedded == len(rows) < 8 * len(QUESTIONS)
    assert sorted(corpus.asked) == sorted(rows)
    assert index.search_texts(QUESTIONS, 8) == found
    assert index.vectors.embedded == len(rows)
    index.search_texts(["rome rome"], 8)
    again = set(SidrIndex.make(encoder, corpus, bags, m=8).search_texts(["rome rome"], 8)[0].ids)
    assert index.vectors.embedded == len(rows | again)


def test_the_vector_cache_evicts_the_least_recently_used(encoder):
    queries = encoder.embed(QUESTIONS[:2])
    unlimited = PassageVectors(encoder, Corpus())
    small = PassageVectors(encoder, Corpus(), limit=3)
    want = unlimited.scores(queries, [[4, 1, 9], [9, 2, 7]])
    for expected, found in zip(want, small.scores(queries, [[4, 1, 9], [9, 2, 7]]), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert small.embedded == 5
    small.scores(queries[:1], [[9, 2, 7]])  # the three asked for last
    assert small.embedded == 5
    small.scores(queries[:1], [[9, 4]])  # 4 had to go
    assert small.embedded == 6


def test_equal_passages_are_in_the_order_of_rows(encoder, bags):
    corpus = Corpus()
    corpus.rows = [corpus.rows[5]] * COUNT
    vectors = PassageVectors(encoder, corpus)
    (found,) = late(encoder.embed(["rome"]), [Ranking((9, 3, 40, 8), (4, 3, 2, 1))], vectors, 3)
    assert found.ids == (3, 8, 9) and len(set(found.scores)) == 1


def test_identity_depends_on_all_that_determines_results(encoder, bags, vectors, where):
    def identity(encoder=encoder, index=bags, **settings):
        return SidrIndex.make(encoder, Corpus(), index, **settings).identity

    moved = jax.tree.map(lambda x: x * 1.5, encoder.params)
    shorter = BagTokenizer.of(encoder.tokenizer, first=FIRST, max_length=9)
    others = [identity(m=21), identity(search="beta"), identity(encoder.with_params(moved, "step"))]
    others += [identity(index=vectors, search=search) for search in ("alpha", "parametric")]
    others += [identity(index=build_bag_of_tokens(Corpus(), shorter, where / "shorter"))]
    others += [identity(dataclasses.replace(encoder, identity='{"top":5}'))]
    assert len({identity(), *others}) == 1 + len(others)
    assert identity() == identity(m=20, search="late")
    assert identity(search="beta", m=3) == identity(search="beta")  # which has no m


def test_another_encoder_over_the_same_tokens(encoder, bags, vectors):
    index = SidrIndex.make(encoder, Corpus(), bags, m=9)
    moved = encoder.with_params(jax.tree.map(lambda x: x * 1.5, encoder.params), "step 1")
    swapped = index.with_encoder(moved)
    assert swapped.m == 9 and swapped.index is bags and index.with_encoder(moved, m=4).m == 4
    fresh = SidrIndex.make(moved, Corpus(), bags, m=9)
    assert swapped.search_texts(QUESTIONS, 9) == fresh.search_texts(QUESTIONS, 9)
    assert swapped.search_texts(QUESTIONS, 9) != index.search_texts(QUESTIONS, 9)
    whole = SidrIndex.make(encoder, Corpus(), vectors, search="alpha")
    with pytest.raises(InputError, match="alpha search goes with the encoder that made"):
        whole.with_encoder(moved)


@pytest.mark.parametrize(
    "search, over, said",
    [
        ("late", "vectors", "late search does not go with a SparseIndex"),
        ("parametric", "bags", "parametric search does not go with a BagOfTokens"),
    ],
)
def test_incompatible_searches_and_indexes_are_refused(encoder, bags, vectors, search, over, said):
    index = {"bags": bags, "vectors": vectors}[over]
    with pytest.raises(InputError, match=said):
        SidrIndex.make(encoder, Corpus(), index, search=search)


def test_an_index_over_another_vocabulary_is_refused(encoder, where):
    tokenizer = BagTokenizer.of(encoder.tokenizer, first=FIRST + 1, max_length=24)
    others = build_bag_of_tokens(Corpus(), tokenizer, where / "other-bags")
    size = small_sidr.DIMENSION
    with pytest.raises(InputError, match=f"has {size} tokens .* the index {size - 1}"):
        SidrIndex.make(encoder, Corpus(), others)


def test_m_below_one_and_k_above_m_are_refused(encoder, bags):
    with pytest.raises(InputError, match="m is 0"):
        SidrIndex.make(encoder, Corpus(), bags, m=0)
    index = SidrIndex.make(encoder, Corpus(), bags, m=4)
    for k in (0, 5):
        with pytest.raises(InputError, match=f"{k} passages are requested, but late"):
            index.search_texts(QUESTIONS, k)
