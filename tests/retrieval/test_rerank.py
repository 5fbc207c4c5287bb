import dataclasses
import json

import numpy as np
import pytest

from jaxrag.models.checkpoint.files import read_tensors
from jaxrag.retrieval.rerank import (
    QUERY_LIKELIHOOD_PROMPT,
    CrossEncoderReranker,
    QueryLikelihoodReranker,
)
from jaxrag.types import InputError
from tests.models.bert import small_bert
from tests.models.bert.small_bert import BERT, CONFIGS, WORDS
from tests.scripted import ScriptedModel

KINDS = sorted(CONFIGS)


def pairs(count, longest=20, seed=0):
    random = np.random.default_rng(seed)

    def sentence(most):
        return " ".join(random.choice(WORDS, random.integers(1, most)))

    return [sentence(6) for _ in range(count)], [sentence(longest) for _ in range(count)]


@pytest.fixture(params=KINDS)
def checkpoint(request, tmp_path):
    return small_bert.write(tmp_path, CONFIGS[request.param], classifier=True)


def encode(path, queries, passages, limit=60):
    config = json.loads((path / "config.json").read_text())
    tokenizer = small_bert.tokenizer(config)
    for query, passage in zip(queries, passages, strict=True):
        found = tokenizer(query, passage, truncation="longest_first", max_length=limit)
        ids = np.array([found.input_ids])
        yield config, ids, np.array([found.get("token_type_ids", np.zeros_like(ids)[0])])


def test_scores_equal_the_float64_reference(checkpoint):
    queries, passages = pairs(6)
    tensors = dict(read_tensors(checkpoint))
    scores = CrossEncoderReranker.load(str(checkpoint)).score(queries, passages)
    assert scores.shape == (6,) and scores.dtype == np.float32
    for got, (config, ids, segments) in zip(
        scores, encode(checkpoint, queries, passages), strict=True
    ):
        want = small_bert.logits(tensors, config, ids, segments, np.ones(ids.shape))
        assert want.shape == (1, 1)
        np.testing.assert_allclose(got, want[0, 0], atol=2e-5)


def test_a_score_does_not_depend_on_the_batch(checkpoint):
    reranker = CrossEncoderReranker.load(str(checkpoint))
    queries, passages = pairs(40)
    whole = reranker.score(queries, passages)
    assert len(set(whole.tolist())) == 40
    np.testing.assert_array_equal(reranker.score(queries[::-1], passages[::-1]), whole[::-1])
    np.testing.assert_array_equal(reranker.score(queries[7:8], passages[7:8]), whole[7:8])


def test_long_passages_are_cut_and_empty_input_gives_no_scores(checkpoint):
    reranker = dataclasses.replace(CrossEncoderReranker.load(str(checkpoint)), max_length=10)
    one = reranker.score(["cat"], ["mat " * 20])
    np.testing.assert_array_equal(reranker.score(["cat"], ["mat " * 30]), one)
    assert reranker.score([], []).shape == (0,)


def test_identity(tmp_path):
    first = str(small_bert.write(tmp_path / "a", BERT, classifier=True))
    other = str(small_bert.write(tmp_path / "b", BERT, classifier=True, seed=1))
    one, two = (json.loads(CrossEncoderReranker.load(path).identity) for path in (first, other))
    assert one["cross_encoder"].pop("weights") != two["cross_encoder"].pop("weights")
    assert one == two == {"cross_encoder": {"dtype": "float32", "max_length": 64}}


def test_invalid_input_is_refused(tmp_path):
    path = str(small_bert.write(tmp_path / "one", BERT, classifier=True))
    reranker = CrossEncoderReranker.load(path)
    with pytest.raises(InputError, match="2 queries but 1 passages"):
        reranker.score(["cat", "mat"], ["rug"])
    with pytest.raises(InputError, match="Query 1 is empty"):
        reranker.score(["cat", " "], ["rug", "rug"])
    many = BERT | {"id2label": {"0": "no", "1": "yes"}}
    path = str(small_bert.write(tmp_path / "two", many, classifier=True))
    with pytest.raises(InputError, match="2 labels; a reranker has one"):
        CrossEncoderReranker.load(path)
    path = str(small_bert.write(tmp_path / "bare", BERT, classifier=False))
    with pytest.raises(InputError, match=r"missing: classifier\.weight"):
        CrossEncoderReranker.load(path)


@pytest.mark.parity
def test_parity_with_torch(checkpoint):
    torch = pytest.importorskip("torch")
    import transformers

    queries, passages = pairs(8, longest=70)
    peer = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint).eval()
    reranker = dataclasses.replace(CrossEncoderReranker.load(str(checkpoint)), max_length=60)
    got = reranker.score(queries, passages)
    for score, (_, ids, segments) in zip(got, encode(checkpoint, queries, passages), strict=True):
        with torch.no_grad():
            out = peer(torch.tensor(ids), token_type_ids=torch.tensor(segments))
        np.testing.assert_allclose(score, out.logits[0, 0].numpy(), atol=2e-5)


def counted():
    """A model whose n-th token of a continuation has log-probability -n / prompt size."""
    return ScriptedModel(
        scores=lambda prompt, text: -np.arange(1, len(text.split()) + 1) / len(prompt),
        identity='{"model":"counted"}',
    )


def test_query_likelihood_by_hand():
    model = counted()
    reranker = QueryLikelihoodReranker(model)
    prompts = [QUERY_LIKELIHOOD_PROMPT.replace("{passage}", text) for text in ("{x}", "rugs")]
    scores = reranker.score(["who is it", "what"], ["{x}", "rugs"])
    # tokens -1/size, -2/size, -3/size, whose mean is -2/size; and -1/size
    np.testing.assert_allclose(scores, [-2 / len(prompts[0]), -1 / len(prompts[1])], rtol=1e-6)
    assert scores.dtype == np.float32
    assert [prompt for prompt, _ in model.scored] == prompts and not model.prompts
    assert reranker.score([], []).shape == (0,)


def test_query_likelihood_identity_includes_the_model():
    plain = QueryLikelihoodReranker(counted())
    assert '\\"counted\\"' in plain.identity
    with pytest.raises(InputError, match="Query 0 is empty"):
        plain.score([""], ["rug"])
