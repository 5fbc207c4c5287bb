"""Checkpoints that declare, in files of sentence-transformers, how states become vectors."""

import json
import logging
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from jaxrag.models.checkpoint.files import read_tensors
from jaxrag.retrieval.dense.encoder import BiEncoder, Encoder, EncoderSettings
from jaxrag.types import InputError, Passage
from tests.models.bert import small_bert
from tests.models.bert.small_bert import BERT
from tests.retrieval.fakes import embed_passages

OLD = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens",
       "mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens",
       "lasttoken": "lasttoken"}  # fmt: skip
TEXTS = ["the cat", "money in bank of river on rug", "", "paris is the capital of france " * 3]


def write(path, *kinds, names=(), dense=(), pooling=None, network="", **files: Any):
    """A random BERT that declares poolings (their old fields), dense layers and other modules.

    ``files`` has the contents of sentence_bert_config.json and config_sentence_transformers.json.
    """
    small_bert.write(path / network, BERT, classifier=False)
    kinds = kinds or ("mean",)
    names = ["Transformer", "Pooling", *["Dense"] * len(dense), *names]
    folders = [network, *(f"{i}_{name}" for i, name in enumerate(names[1:], 1))]
    kind = "sentence_transformers.models."
    rows = [
        {"name": name + where, "path": where, "type": kind + name}
        for where, name in zip(folders, names, strict=True)
    ]
    (path / "modules.json").write_text(json.dumps(rows))
    for folder in folders[1:]:
        (path / folder).mkdir()
    fields = {f"pooling_mode_{field}": kind in kinds for kind, field in OLD.items()}
    (path / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": 24} | (pooling or fields))
    )
    size, draw = 24 * len(kinds), np.random.default_rng(3)
    for i, (outputs, bias, activation) in enumerate(dense, 2):
        config = {"in_features": size, "out_features": outputs, "bias": bias,
                  "activation_function": f"torch.nn.modules.activation.{activation}"}  # fmt: skip
        (path / f"{i}_Dense/config.json").write_text(json.dumps(config))
        arrays = {"linear.weight": draw.normal(0, 0.3, (outputs, size)).astype(np.float32)}
        arrays |= {"linear.bias": draw.normal(size=outputs).astype(np.float32)} if bias else {}
        save_file(arrays, path / f"{i}_Dense/model.safetensors", {"format": "pt"})
        size = outputs
    for name, content in files.items():
        where = path / (network if name == "sentence_bert_config" else "")
        (where / f"{name}.json").write_text(json.dumps(content))
    return path


def reference(path, text, pool):
    """``pool`` of the states of a text in float64."""
    ids = np.array([small_bert.tokenizer(BERT)(text).input_ids])
    states = small_bert.hidden_states(
        dict(read_tensors(path)), BERT, ids, np.zeros_like(ids), np.ones(ids.shape)
    )
    return pool(states[0])


REFERENCES = {
    "cls": lambda x: x[0],
    "max": lambda x: x.max(0),
    "mean": lambda x: x.mean(0),
    "mean_sqrt_len_tokens": lambda x: x.sum(0) / np.sqrt(len(x)),
    "weightedmean": lambda x: np.average(x, axis=0, weights=range(1, len(x) + 1)),
    "lasttoken": lambda x: x[-1],
}
DOT: Any = {"config_sentence_transformers": {"similarity_fn_name": "dot"}}


@pytest.mark.parametrize("kind", REFERENCES)
def test_the_declared_pooling_is_the_default(kind, tmp_path):
    write(tmp_path, kind, **DOT)
    encoder = BiEncoder(str(tmp_path)).load()
    for text, got in zip(TEXTS, encoder.embed(TEXTS), strict=True):
        want = reference(tmp_path, text, REFERENCES[kind])
        np.testing.assert_allclose(got, want, atol=1e-5)
    assert json.loads(encoder.identity)["encoder"]["pooling"] == kind


@pytest.mark.parametrize("pooling", [None, {"pooling_mode": ["cls", "mean"]}])
def test_several_poolings_dense_layers_and_norms_in_their_order(pooling, tmp_path):
    layers = [(40, True, "Tanh"), (9, False, "Identity"), (12, True, "GELU"), (7, True, "ReLU")]
    write(tmp_path, "cls", "mean", dense=layers, names=["Dropout", "Normalize"], pooling=pooling)
    made = BiEncoder(str(tmp_path))
    encoder = made.load()
    whole = encoder.embed(TEXTS)
    for i, text in enumerate(TEXTS):
        x = reference(tmp_path, text, lambda x: np.concatenate([x[0], x.mean(0)]))
        for at, activation in enumerate(
            (np.tanh, lambda x: x, gelu, lambda x: np.maximum(x, 0)), 2
        ):
            layer = {
                n: a.astype(np.float64) for n, a in read_tensors(tmp_path / f"{at}_Dense").items()
            }
            x = activation(layer["linear.weight"] @ x + layer.get("linear.bias", 0))
        np.testing.assert_allclose(whole[i], x / np.linalg.norm(x), atol=2e-5)
        np.testing.assert_array_equal(encoder.embed([text])[0], whole[i])
    assert made.dimension == made.describe().dimension == encoder.dimension == 7
    before = made.describe().identity
    assert before == encoder.identity
    weights = dict(read_tensors(tmp_path / "3_Dense"))
    save_file({n: a + 1 for n, a in weights.items()}, tmp_path / "3_Dense/model.safetensors")
    assert made.describe().identity != before


def gelu(x):
    from scipy.special import erf

    return x * (1 + erf(x / np.sqrt(2))) / 2


@pytest.mark.parametrize(
    ("names", "similarity", "unit"),
    [
        (["Normalize"], "dot", True),
        ([], "dot", False),
        ([], "euclidean", False),
        ([], "cosine", True),
        ([], None, True),
    ],
)
def test_unit_length_is_what_the_declared_similarity_needs(names, similarity, unit, tmp_path):
    write(tmp_path, names=names, config_sentence_transformers={"similarity_fn_name": similarity})
    (vector,) = BiEncoder(str(tmp_path)).load().embed(["the cat"])
    assert (abs(np.linalg.norm(vector) - 1) < 1e-6) == unit


@pytest.mark.parametrize(
    ("similarity", "told"), [(None, "cosines"), ("euclidean", "metric=l2"), ("manhattan", "l2")]
)
def test_lengths_that_count_are_told_unless_they_are_set(similarity, told, tmp_path, caplog):
    write(tmp_path, config_sentence_transformers={"similarity_fn_name": similarity})
    BiEncoder(str(tmp_path), normalise=bool(not similarity)).describe()
    assert not caplog.records
    BiEncoder(str(tmp_path)).describe()
    (record,) = caplog.records
    assert told in record.getMessage() and str(similarity or "Normalize") in record.getMessage()


@pytest.mark.parametrize(
    ("declared", "query", "passage"),
    [
        ({"prompts": {"query": "is ", "document": "of "}}, "is ", "of "),
        ({"prompts": {"query": "is ", "document": "", "passage": "of "}}, "is ", "of "),
        ({"prompts": {"query": "is "}, "default_prompt_name": "query"}, "is ", ""),
        ({"prompts": {"x": "is "}, "default_prompt_name": "x"}, "is ", "is "),
        ({"prompts": {"x": "is "}}, "", ""),
        ({}, "", ""),
    ],
)
def test_declared_prompts_are_put_before_texts(declared, query, passage, tmp_path, caplog):
    path = str(write(tmp_path, config_sentence_transformers=declared))
    encoder, bare = (
        BiEncoder(path).load(),
        BiEncoder(path, query_prefix="", passage_prefix="").load(),
    )
    caplog.clear()
    np.testing.assert_array_equal(encoder.embed(["cat"]), bare.embed([f"{query}cat"]))
    found = embed_passages(encoder, [Passage("1", "Rome", "on mat")])
    np.testing.assert_array_equal(found, bare.embed([f"{passage}Rome on mat"]))
    told = json.loads(encoder.identity)["encoder"]
    assert (told["query_prefix"], told["passage_prefix"]) == (query, passage)


def test_unknown_prompts_are_logged(tmp_path, caplog):
    write(tmp_path, config_sentence_transformers={"prompts": {"sts": "is "}})
    BiEncoder(str(tmp_path)).describe()
    assert "declares prompts (sts), none of them for queries" in caplog.text


@pytest.mark.parametrize(
    ("files", "length"),
    [
        ({"sentence_bert_config": {"max_seq_length": 7, "do_lower_case": False}}, 7),
        ({"sentence_roberta_config": {"max_seq_length": 7}}, 7),  # as older ones call it
        ({"sentence_bert_config": {"max_seq_length": 512}}, 64),  # as many as there are positions
        ({"sentence_bert_config": {"max_seq_length": None},
          "tokenizer_config": {"model_max_length": 9}}, 9),
        ({"tokenizer_config": {}}, 64),
    ],
)  # fmt: skip
def test_the_declared_length_cuts_texts(files, length, tmp_path):
    tokenizer = {"tokenizer_class": "BertTokenizer", "pad_token": "[PAD]"}
    if "tokenizer_config" in files:
        files = files | {"tokenizer_config": tokenizer | files["tokenizer_config"]}
    encoder: Any = BiEncoder(str(write(tmp_path, **files))).load()
    assert encoder.max_length == json.loads(encoder.identity)["encoder"]["max_length"] == length
    words = ["the"] * (length - 3)  # beside [CLS], [SEP] and one more
    one, other = encoder.embed([" ".join([*words, "cat"]), " ".join([*words, "cat", "rug"])])
    np.testing.assert_array_equal(one, other)


def test_first_entries_lower_case_and_a_network_in_a_folder(tmp_path):
    folders = {"network": "0_Transformer", "sentence_bert_config": {"do_lower_case": True}}
    path = write(tmp_path, config_sentence_transformers={"truncate_dim": 5}, **folders)
    tokenizer = path / "0_Transformer/tokenizer.json"
    cased = json.loads(tokenizer.read_text()) | {"normalizer": None}
    tokenizer.write_text(json.dumps(cased))
    made = BiEncoder(str(path))
    encoder = made.load()
    upper, lower = encoder.embed(["THE Cat", "the cat"])
    np.testing.assert_array_equal(upper, lower)
    want = reference(path / "0_Transformer", "the cat", REFERENCES["mean"])[:5]
    np.testing.assert_allclose(lower, want / np.linalg.norm(want), atol=1e-5)
    whole = BiEncoder(str(path), matryoshka=0).load()
    assert (made.dimension, encoder.dimension, whole.dimension) == (5, 5, 24)
    assert json.loads(encoder.identity)["encoder"]["lower_case"] is True


def test_settings_that_contradict_are_used_and_logged_once(tmp_path, caplog):
    path = str(write(tmp_path, "cls", names=["Normalize"]))
    same = BiEncoder(path, pooling="cls", normalise=True, max_length=64, query_prefix="is ")
    same.load()
    assert not caplog.records  # prefixes are not declared
    other = EncoderSettings(pooling="mean", max_length=9)
    vectors = [Encoder.load(path, other).embed(["the cat"]) for _ in range(2)]
    want = reference(tmp_path, "the cat", REFERENCES["mean"])
    np.testing.assert_allclose(vectors[0][0], want / np.linalg.norm(want), atol=1e-5)
    (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert record.getMessage() == (
        f"{path} declares other settings than those of the encoder: max_length 64 (set: 9), "
        "pooling 'cls' (set: 'mean')"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modules": [{"type": "x.Transformer"}]}, "modules.json is no list of modules .*'path'"),
        ({"modules": {}, "names": ["WordWeights"]}, "Transformer, Pooling, WordWeights; supported"),
        ({"modules": {}, "names": ["Normalize", "Normalize"]}, "supported are .* in this order"),
        ({"modules": {}, "network": "../x"}, "folders must lie beside it"),
        ({"pooling": {"pooling_mode": "attention"}}, "1_Pooling: pooling is 'attention'"),
        ({"pooling": {"pooling_mode": ["cls", 3]}}, r"pooling is 'cls\+3'"),
        ({"pooling": {"pooling_mode_attention": True}}, "1_Pooling: pooling is 'attention'"),
        ({"pooling": {"pooling_mode_mean_tokens": "false"}}, "1_Pooling: pooling is ''"),
        ({"pooling": {"include_prompt": False},
          "config_sentence_transformers": {"prompts": {"query": "is "}}},
         "include_prompt is false"),
        ({"dense": [(8, True, "Softplus")]}, "2_Dense: a Dense module .*it is Softplus"),
        ({"dense": [(8, True, "Tanh")], "pooling": {"pooling_mode": ["cls", "max"]}},
         "2_Dense takes 24 numbers, but gets 48"),
        ({"config_sentence_transformers": {"prompts": ["is "]}}, "prompts of .* are no texts"),
        ({"config_sentence_transformers": {"truncate_dim": "64"}}, "truncate_dim is '64'"),
        ({"config_sentence_transformers": {"truncate_dim": 25}}, "matryoshka is 25; .* 24 numbers"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_one_error(change, message, tmp_path):
    network = change.pop("network", "")
    modules = change.pop("modules", None)
    write(tmp_path, **change)
    file = tmp_path / "modules.json"
    if modules:
        file.write_text(json.dumps(modules))
    if network:
        file.write_text(file.read_text().replace('"path": ""', f'"path": "{network}"'))
    with pytest.raises(InputError, match=message):
        BiEncoder(str(tmp_path)).describe()


@pytest.mark.parity
@pytest.mark.parametrize("kinds", [(kind,) for kind in OLD] + [("max", "lasttoken", "cls")])
def test_declarations_equal_sentence_transformers(kinds, tmp_path):
    peer_module = pytest.importorskip("sentence_transformers")
    write(
        tmp_path,
        *kinds,
        dense=[(30, True, "Tanh"), (20, False, "GELU")],
        names=["Normalize"],
        sentence_bert_config={"max_seq_length": 9, "do_lower_case": True},
        config_sentence_transformers={
            "prompts": {"query": "is the ", "document": "in "},
            "truncate_dim": 11,
            "similarity_fn_name": "cosine",
        },
    )
    (tmp_path / "3_Normalize").mkdir(exist_ok=True)
    peer = peer_module.SentenceTransformer(str(tmp_path), device="cpu")
    ours = BiEncoder(str(tmp_path)).load()
    want = peer.encode_query(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(ours.embed(TEXTS), want, atol=2e-5)
    want = peer.encode_document(TEXTS, normalize_embeddings=True)
    passages = [Passage(text, "", text) for text in TEXTS]
    np.testing.assert_allclose(embed_passages(ours, passages), want, atol=2e-5)
