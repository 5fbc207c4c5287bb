"""The terms of a match: their sum is the score, their tokens are those of the texts."""

import numpy as np
import pytest

from jaxrag.retrieval.sidr.explain import explain
from jaxrag.retrieval.sidr.semi_parametric import SidrIndex
from tests.models.bert.small_bert import WORDS
from tests.models.bert.test_sidr import FIRST
from tests.retrieval.sidr import small_sidr
from tests.retrieval.sidr.small_sidr import tokens
from tests.retrieval.sidr.test_semi_parametric import (
    QUESTIONS,
    Corpus,
    bags,
    encoder,
    vectors,
    where,
)

__all__ = ["bags", "encoder", "vectors", "where"]  # fixtures
NAMES = [*(f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP")), *WORDS][FIRST:]


@pytest.mark.parametrize("search", ["late", "beta", "alpha", "parametric"])
def test_the_terms_add_up_to_the_score(encoder, bags, vectors, search):
    over = bags if search in ("late", "beta") else vectors
    index = SidrIndex.make(encoder, Corpus(), over, search=search)
    for question in QUESTIONS:
        (ranking,) = index.search_texts([question], 4)
        found = explain(index, question, ranking.ids)
        assert [match.passage.id for match in found] == [f"p{row}" for row in ranking.ids]
        for match, score in zip(found, ranking.scores, strict=True):
            assert match.score == pytest.approx(score, rel=1e-6)
            products = [term.query * term.passage for term in match.terms]
            assert sum(products) == pytest.approx(match.score)
            assert products == sorted(products, reverse=True)
            assert all(product > 0 for product in products)
            shares = [term.share * match.score for term in match.terms]
            np.testing.assert_allclose(shares, products, rtol=1e-12)
            read, held = tokens(question), tokens(index.encoder.passage_text(match.passage))
            for term in match.terms:
                token = NAMES.index(term.token) + FIRST
                assert (term.in_query, term.in_passage) == (token in read, token in held)
                if search == "beta":
                    assert term.passage == 1 and term.in_passage
                if search == "alpha":
                    assert term.query == 1 and term.in_query


def test_tokens_beyond_the_length_limit_have_no_terms(encoder, bags):
    """query_length is 16: the tokens of a question behind it are none of its own."""
    index = SidrIndex.make(encoder, Corpus(), bags, search="beta")
    long = " ".join(["cat"] * 14 + ["rome"])
    row = next(i for i, p in enumerate(Corpus().rows) if "rome" in p.text.split())
    (match,) = explain(index, long, [row])
    assert not any(term.in_query for term in match.terms if term.token == "rome")


def test_texts_without_common_tokens_have_no_terms(encoder, vectors):
    """T(q) of words that do not count is empty: alpha search scores 0 for every passage."""
    index = SidrIndex.make(encoder, Corpus(), vectors, search="alpha")
    (match,) = explain(index, "the a cat unheard", [3])
    assert match.score == 0 and match.terms == ()
    assert small_sidr.own(tokens("the a cat unheard")).sum() == 0
