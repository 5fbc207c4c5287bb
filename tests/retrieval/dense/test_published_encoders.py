"""The encoders of well-known retrievers: what they compute, and that torch computes the same."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from jaxrag.models.bert.checkpoint import load_encoder, read_bert_config
from jaxrag.models.checkpoint.files import read_config, read_tensors, write_checkpoint
from jaxrag.retrieval.dense.encoder import BiEncoder, TwoTowers, resolve
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import (
    INSTRUCTION,
    bge,
    contriever,
    dpr,
    e5,
    nomic,
    published_encoder,
)
from jaxrag.retrieval.dense.scann.index import Scann
from jaxrag.types import InputError, Passage
from tests.models.bert import small_bert, small_nomic
from tests.models.bert.small_bert import BERT, random_tensors
from tests.retrieval.fakes import embed_passages

DPR = BERT | {"model_type": "dpr", "projection_dim": 0}
QUERIES = ["cat", "the capital of france is paris", "money in bank of river on rug", ""]
PASSAGES = [
    Passage("1", "Cat", "the feline sat on the mat"),
    Passage("2", "", "bank of river"),
    Passage("3", "Capital of France", "paris " * 30),
    Passage("4", "Rome", "rome is a capital of money in the bank and the cat is on the rug"),
]


def write_tower(directory, prefix, config=DPR, seed=0, extra=()):
    """A tower as DPR's classes save it."""
    tensors = random_tensors(BERT | {"hidden_size": config["hidden_size"]}, classifier=False,
                             seed=seed)  # fmt: skip
    named = {f"{prefix}.bert_model.{name}": tensor for name, tensor in tensors.items()}
    write_checkpoint(directory, config, named | dict(extra))
    words = small_bert.tokenizer(BERT)
    (directory / "vocab.txt").write_text("\n".join(sorted(words.vocab, key=words.vocab.get)) + "\n")
    return str(directory)


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    """Checkpoints of queries and passages."""
    root = tmp_path_factory.mktemp("dpr")
    queries = write_tower(root / "queries", "question_encoder", seed=1)
    return queries, write_tower(root / "passages", "ctx_encoder", seed=2)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return str(small_bert.write(tmp_path_factory.mktemp("bert"), BERT, classifier=False))


def state(path, prefix, words):
    """The states of one text by NumPy in float64 [t d]."""
    tensors = {name.removeprefix(prefix): t for name, t in read_tensors(Path(path)).items()}
    ids = np.array([small_bert.tokenizer(BERT).convert_tokens_to_ids(words)])
    return small_bert.hidden_states(tensors, BERT, ids, np.zeros_like(ids), np.ones(ids.shape))[0]


def test_dpr_by_hand(towers):
    encoder = dpr(*towers)
    assert (encoder.normalise, encoder.max_length) == (False, 256)
    short = dataclasses.replace(encoder, max_length=64)  # as many positions as there are
    loaded = short.load()
    want = state(towers[0], "question_encoder.bert_model.",
                 ["[CLS]", "the", "cat", "[SEP]"])[0]  # fmt: skip
    np.testing.assert_allclose(loaded.embed(["The cat"])[0], want, atol=1e-5)
    want = state(towers[1], "ctx_encoder.bert_model.",
                 ["[CLS]", "rome", "[SEP]", "is", "capital", "[SEP]"])[0]  # fmt: skip
    (got,) = embed_passages(loaded, [Passage("1", "Rome", "is capital")])
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_prefixes_of_e5_and_none_of_contriever(plain):
    made = {"e5": e5(plain), "contriever": contriever(plain)}
    loaded = {name: dataclasses.replace(e, max_length=64).load() for name, e in made.items()}
    bare = BiEncoder(plain, max_length=64, embed_title=False).load()
    (query,) = bare.embed(["query: the cat"])
    np.testing.assert_array_equal(loaded["e5"].embed(["the cat"])[0], query)
    (passage,) = bare.embed(["passage: Rome is a capital"])
    found = embed_passages(loaded["e5"], [Passage("1", "Rome", "is a capital")])
    np.testing.assert_array_equal(found[0], passage)
    states = state(plain, "", ["[CLS]", "rome", "is", "a", "[SEP]"])
    found = embed_passages(loaded["contriever"], [Passage("1", "Rome", "is a")])
    np.testing.assert_allclose(found[0], states.mean(axis=0), atol=1e-5)


def test_bge_reads_the_first_token_and_an_instruction(plain):
    bare = BiEncoder(plain, pooling="cls", max_length=64).load()
    (query,) = bare.embed([INSTRUCTION + "the cat"])
    (plain_query,) = bare.embed(["the cat"])
    loaded = dataclasses.replace(bge(plain), max_length=64).load()
    np.testing.assert_array_equal(loaded.embed(["the cat"])[0], query)
    papers = dataclasses.replace(bge(plain, instruction=False), max_length=64).load()
    np.testing.assert_array_equal(papers.embed(["the cat"])[0], plain_query)
    assert np.abs(query - plain_query).max() > 1e-3


def test_nomic_names_the_task(tmp_path):
    path = write_checkpoint(
        tmp_path, small_nomic.CONFIG, small_nomic.random_tensors(small_nomic.CONFIG)
    )
    small_bert.tokenizer(BERT).save_pretrained(path)
    whole = dataclasses.replace(nomic(str(path)), max_length=64)
    raw = BiEncoder(str(path), max_length=64, normalise=False, embed_title=False).load()
    (states,) = raw.embed(["search_query: the cat"])
    np.testing.assert_allclose(
        whole.load().embed(["the cat"])[0], states / np.linalg.norm(states), atol=1e-6
    )
    (passage,) = raw.embed(["search_document: Rome is a capital"])
    found = embed_passages(whole.load(), [Passage("1", "Rome", "is a capital")])[0]
    np.testing.assert_allclose(found, passage / np.linalg.norm(passage), atol=1e-6)
    assert whole.dimension == 24 and nomic(str(path)).max_length == 2048


def test_identity_names_both_towers(towers, plain):
    both = BiEncoder(towers[1], query_checkpoint=towers[0], max_length=64)
    swapped = BiEncoder(towers[0], query_checkpoint=towers[1], max_length=64)
    alone = BiEncoder(towers[1], max_length=64)
    identities = {e.load().identity for e in (both, swapped, alone)}
    assert len(identities) == 3
    assert (resolved := resolve(Path(towers[0]), BiEncoder())[0]).pooling == "cls"
    assert resolved.normalise is False  # by the checkpoint's type, where no setting says more
    for encoder in (both, alone):  # what a dry run tells is what the run will say
        described = encoder.describe()
        assert described.identity == encoder.load().identity
        assert described.dimension == 24


def test_towers_of_different_sizes_are_refused(towers, tmp_path):
    wide = write_tower(tmp_path, "question_encoder", DPR | {"hidden_size": 30})
    other = BiEncoder(towers[1], query_checkpoint=wide, max_length=64)
    with pytest.raises(InputError, match="vectors of 30 numbers, the passage checkpoint of 24"):
        other.load()
    with pytest.raises(InputError, match="not two towers"):
        other.describe()


def test_dpr_projections_and_readers_are_refused(tmp_path):
    with pytest.raises(InputError, match="projection_dim is 128; only 0"):
        read_bert_config(DPR | {"projection_dim": 128}, source="somewhere")
    write_tower(tmp_path, "span_predictor.encoder")
    with pytest.raises(InputError, match="surplus: span_predictor"):
        load_encoder(tmp_path, dtype=np.dtype("float32"))
    lacking = {key: value for key, value in DPR.items() if key != "pad_token_id"}
    assert read_bert_config(lacking, source="").pad_token_id == 0  # BERT's


def test_names_in_tables():
    assert Exact(dpr()).name == "dpr-ctx_encoder-single-nq-base, exact"
    assert Scann(e5()).name == "e5-base-v2, ScaNN"
    assert contriever().checkpoints == ("hub:facebook/contriever-msmarco",)
    assert dpr("a", "b").checkpoints == ("b", "a")


def test_settings_are_those_of_a_family():
    names = ["multilingual-e5-base", "multilingual-e5-large-instruct", "mcontriever-msmarco"]
    found = [published_encoder(f"hub:x/{name}") for name in names]
    assert [one.passage_prefix for one in found] == ["passage: ", None, ""]
    assert [one.normalise for one in found] == [True, None, False]


# --- against torch -----------------------------------------------------------------------------


def torch_states(model, tokenizer, texts, pairs=None):
    """Last states and mask of a padded batch."""
    import torch

    batch = tokenizer(texts, pairs, padding=True, truncation=True, max_length=64,
                      return_tensors="pt", return_token_type_ids=False)  # fmt: skip
    with torch.no_grad():
        out = model(**batch)
    return out, batch["attention_mask"].bool()


def torch_mean(model, tokenizer, texts):
    out, where = torch_states(model, tokenizer, texts)
    summed = out.last_hidden_state.masked_fill(~where[..., None], 0.0).sum(dim=1)
    return summed / where.sum(dim=1)[..., None]


@pytest.mark.parity
@pytest.mark.parametrize(
    "make, query, passage", [(contriever, "", ""), (e5, "query: ", "passage: ")]
)
def test_mean_pooled_retrievers_equal_torch(plain, make, query, passage):
    torch = pytest.importorskip("torch")
    import transformers

    ours = dataclasses.replace(make(plain), max_length=64, dtype="float32").load()
    model = transformers.BertModel.from_pretrained(plain, add_pooling_layer=False).eval()
    words = ours.tokenizer
    titled = [f"{passage}{p.title} {p.text}" if p.title else passage + p.text for p in PASSAGES]
    for got, texts in (
        (ours.embed(QUERIES), [query + text for text in QUERIES]),
        (embed_passages(ours, PASSAGES), titled),
    ):
        want = torch_mean(model, words, texts)
        if make is e5:
            want = torch.nn.functional.normalize(want, dim=-1)
        assert np.ptp(np.linalg.norm(got, axis=1)) > 0.1 or make is e5
        np.testing.assert_allclose(got, want.numpy(), atol=2e-5)


@pytest.mark.parity
def test_dpr_equals_torch(tmp_path):
    torch = pytest.importorskip("torch")
    import transformers

    torch.manual_seed(3)
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
             "num_attention_heads", "max_position_embeddings", "layer_norm_eps")  # fmt: skip
    config = transformers.DPRConfig(
        **{name: BERT[name] for name in names}, hidden_act="gelu_new", initializer_range=0.3
    )
    peers = {
        "queries": transformers.DPRQuestionEncoder(config).eval(),
        "passages": transformers.DPRContextEncoder(config).eval(),
    }
    words = small_bert.tokenizer(BERT)
    for name, peer in peers.items():
        peer.save_pretrained(tmp_path / name)
        (tmp_path / name / "vocab.txt").write_text(
            "\n".join(sorted(words.vocab, key=words.vocab.get)) + "\n"
        )
    made = dpr(str(tmp_path / "queries"), str(tmp_path / "passages"))
    ours = dataclasses.replace(made, max_length=64, dtype="float32").load()
    assert isinstance(ours, TwoTowers)
    tokenizer = transformers.DPRContextEncoderTokenizerFast.from_pretrained(tmp_path / "passages")
    out, _ = torch_states(peers["queries"], tokenizer, QUERIES)
    np.testing.assert_allclose(ours.embed(QUERIES), out.pooler_output.numpy(), atol=2e-5)
    with_title = [p for p in PASSAGES if p.title]
    out, _ = torch_states(peers["passages"], tokenizer, [p.title for p in with_title],
                          [p.text for p in with_title])  # fmt: skip
    got = embed_passages(ours, PASSAGES)
    rows = [i for i, p in enumerate(PASSAGES) if p.title]
    np.testing.assert_allclose(got[rows], out.pooler_output.numpy(), atol=2e-5)
    out, _ = torch_states(peers["passages"], tokenizer, [PASSAGES[1].text])
    np.testing.assert_allclose(got[1], out.pooler_output.numpy()[0], atol=2e-5)
    assert read_config(tmp_path / "passages")["model_type"] == "dpr"
