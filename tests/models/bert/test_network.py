from types import SimpleNamespace

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.bert.checkpoint import load_classifier, load_encoder, read_bert_config
from jaxrag.models.bert.network import (
    attend,
    cls_pool,
    fused_attention,
    has_fused_attention,
    mean_pool,
)
from jaxrag.models.checkpoint.files import write_checkpoint
from jaxrag.types import InputError
from tests.models.bert import small_bert
from tests.models.bert.small_bert import BERT, CONFIGS, XLM_ROBERTA
from tests.versions import bfloat16_on_cpus

FLOAT32 = jnp.dtype("float32")
KINDS = sorted(CONFIGS)


def inputs(config, lengths=(7, 12, 1, 5)):
    """Right-padded random ids, segments and mask; a row may hold an unknown-to-it pad inside."""
    random = np.random.default_rng(1)
    where = np.arange(max(lengths)) < np.array(lengths)[:, None]
    ids = random.integers(4, config["vocab_size"], where.shape)
    segments = random.integers(0, config["type_vocab_size"], where.shape)
    ids = np.where(where, ids, config["pad_token_id"])
    return ids, np.where(where, segments, 0), where


def apply(module, params, ids, segments, where):
    return module.apply({"params": params}, ids, segments, where=where)


jitted = jax.jit(apply, static_argnames="module")


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_equal_the_float64_reference(kind, tmp_path):
    config = CONFIGS[kind]
    tensors = small_bert.random_tensors(config, classifier=False)
    module, params = load_encoder(write_checkpoint(tmp_path, config, tensors), dtype=FLOAT32)
    ids, segments, where = inputs(config)
    got = jitted(module, params, ids, segments, where)
    want = small_bert.hidden_states(tensors, config, ids, segments, where)
    np.testing.assert_allclose(np.asarray(got)[where], want[where], atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_the_float64_reference(kind, tmp_path):
    config = CONFIGS[kind] | {"id2label": {"0": "a", "1": "b", "2": "c"}}
    tensors = small_bert.random_tensors(config, classifier=True)
    module, params = load_classifier(write_checkpoint(tmp_path, config, tensors), dtype=FLOAT32)
    ids, segments, where = inputs(config)
    got = jitted(module, params, ids, segments, where)
    want = small_bert.logits(tensors, config, ids, segments, where)
    assert got.shape == (4, 3)
    np.testing.assert_allclose(got, want, atol=2e-5)


@bfloat16_on_cpus
def test_bfloat16_is_near_float32(tmp_path):
    small_bert.write(tmp_path, BERT, classifier=True)
    args = inputs(BERT)
    found = []
    for dtype in ("float32", "bfloat16"):
        module, params = load_classifier(tmp_path, dtype=jnp.dtype(dtype))
        logits = jitted(module, params, *args)
        assert logits.dtype == jnp.float32
        found.append(logits)
    assert params["classifier"]["weight"].dtype == jnp.bfloat16
    difference = np.abs(found[0] - found[1]).max()
    assert 0 < difference < 0.1


def test_fused_attention_and_its_derivative_equal_the_plain_one():
    # By XLA, as cuDNN's kernel of the same function needs a GPU; a row of padding alone included.
    random = np.random.default_rng(2)
    projected = random.normal(size=(3, 3, 10, 4, 8)).astype(np.float32)
    where = np.arange(10) < np.array([10, 3, 0])[:, None]
    wanted = random.normal(size=(3, 10, 32)).astype(np.float32) * where[..., None]

    def of(function, **options):
        def loss(parts):
            made = function(*parts, where=where, **options)
            return (made * wanted).sum(), made

        (_, made), slope = jax.value_and_grad(loss, has_aux=True)(projected)
        assert np.isfinite(made).all()
        return np.asarray(made)[where], slope

    with jax.default_matmul_precision("highest"):
        found, expected = of(fused_attention, implementation="xla"), of(attend)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=3e-6)


@pytest.mark.parametrize(
    ("platform", "version", "capability", "dtype", "shape", "found"),
    [
        ("cpu", "cpu", "", "bfloat16", (160, 64), False),
        ("gpu", "PJRT cuda 13", "9.0", "bfloat16", (160, 64), True),
        ("gpu", "PJRT cuda 13", "12.0", "float16", (160, 256), True),
        ("gpu", "PJRT cuda 13", "8.0", "bfloat16", (160, 128), True),
        ("gpu", "PJRT cuda 13", "8.0", "bfloat16", (160, 256), False),
        ("gpu", "PJRT cuda 13", "9.0", "float32", (160, 64), False),
        ("gpu", "PJRT cuda 13", "9.0", "bfloat16", (161, 64), False),  # no derivative
        ("gpu", "PJRT cuda 13", "9.0", "bfloat16", (160, 20), False),
        ("gpu", "PJRT cuda 13", "7.5", "float16", (160, 64), False),  # a T4
        ("gpu", "PJRT rocm 7", "gfx942", "bfloat16", (160, 64), False),
    ],
)
def test_fused_attention_is_taken_where_cudnn_has_it(
    platform, version, capability, dtype, shape, found, monkeypatch
):
    client = SimpleNamespace(platform_version=version)
    device = SimpleNamespace(platform=platform, client=client, compute_capability=capability)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    query = jax.ShapeDtypeStruct((2, shape[0], 4, shape[1]), jnp.dtype(dtype))
    assert has_fused_attention(query) == found


def test_pooling_by_hand():
    # Tokens (1, 2), (3, 4) and a hidden (100, 100): their mean is (2, 3), the first is (1, 2).
    hidden = jnp.array([[[1.0, 2.0], [3.0, 4.0], [100.0, 100.0]], [[5.0, 6.0]] * 3])
    where = jnp.array([[True, True, False], [False] * 3])
    np.testing.assert_array_equal(mean_pool(hidden, where=where), [[2, 3], [0, 0]])
    np.testing.assert_array_equal(cls_pool(hidden), [[1, 2], [5, 6]])


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_is_read_from_a_classifier_and_from_old_names(kind, tmp_path):
    config = CONFIGS[kind]
    tensors = small_bert.random_tensors(config, classifier=True)
    _, params = load_encoder(write_checkpoint(tmp_path / "new", config, tensors), dtype=FLOAT32)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): array
        for name, array in tensors.items()
    }
    old["embeddings.position_ids"] = np.arange(64)
    _, again = load_encoder(write_checkpoint(tmp_path / "old", config, old), dtype=FLOAT32)
    jax.tree.map(np.testing.assert_array_equal, params, again)


def test_a_classifier_needs_a_head(tmp_path):
    small_bert.write(tmp_path, XLM_ROBERTA, classifier=False)
    with pytest.raises(InputError, match=r"missing: classifier\.out_proj\.weight"):
        load_classifier(tmp_path, dtype=FLOAT32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'"),
        ({"model_type": None}, "model_type is None"),
        ({"num_attention_heads": 5}, "hidden_size 24 is not a multiple of num_attention_heads 5"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"hidden_size": "24"}, "hidden_size is '24'"),
        ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
        ({"position_embedding_type": "relative_key"}, "only 'absolute'"),
        ({"intermediate_size": None, "vocab_size": None}, "lacks vocab_size, intermediate_size"),
    ],
)
def test_unsupported_settings_are_refused(change, message):
    with pytest.raises(InputError, match=f"somewhere: .*{message}"):
        read_bert_config(BERT | change, source="somewhere")


def test_max_tokens_excludes_reserved_positions():
    # 64 positions; XLM-RoBERTa's start at pad_token_id + 1 = 4.
    assert read_bert_config(BERT, source="").max_tokens == 64
    assert read_bert_config(XLM_ROBERTA, source="").max_tokens == 60


@pytest.mark.parity
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", [False, True])
def test_parity_with_torch(kind, head, tmp_path):
    torch = pytest.importorskip("torch")
    import transformers

    config = CONFIGS[kind]
    small_bert.write(tmp_path, config, classifier=head)
    ids, segments, where = inputs(config, lengths=(20, 3, 11, 1))
    load = load_classifier if head else load_encoder
    module, params = load(tmp_path, dtype=FLOAT32)
    got = np.asarray(apply(module, params, ids, segments, where))
    auto = "AutoModelForSequenceClassification" if head else "AutoModel"
    peer = getattr(transformers, auto).from_pretrained(tmp_path).eval()
    with torch.no_grad():
        out = peer(*(torch.tensor(a) for a in (ids, where.astype(int), segments)))
    want = out[0].numpy()
    if not head:
        got, want = got[where], want[where]
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_dropout_by_hand():
    """Of 0.5, with weights that make every sum visible: each unit is 0 or twice itself."""
    from jaxrag.models.bert.network import BertResidual

    config = read_bert_config(BERT | {"hidden_size": 24}, source="test")
    module = BertResidual(config, 0.5)
    x = jnp.zeros((40, 5, 24))
    y = jnp.ones((40, 5, 24))
    rngs = {"dropout": jax.random.key(1)}
    dense = {"weight": jnp.eye(24), "bias": jnp.zeros(24)}
    params = {"dense": dense, "LayerNorm": {"weight": jnp.ones(24), "bias": jnp.zeros(24)}}
    run = jax.jit(lambda y, x: module.apply({"params": params}, y, x, rngs=rngs))
    found = np.asarray(run(y, x))
    # a row of zeros and twos has, once normalised, two values whose mean is 0
    kept = found > 0
    # 4,800 draws of probability 1/2: a deviation of 0.0072
    assert abs(kept.mean() - 0.5) < 4 * 0.0072
    share = kept.mean(-1, keepdims=True)
    values = np.where(kept, 2 - 2 * share, -2 * share)
    np.testing.assert_allclose(
        found, values / np.sqrt(values.var(-1, keepdims=True) + 1e-2), atol=1e-4
    )


def test_dropout_is_of_embeddings_attention_and_both_sums(tmp_path):
    config = BERT | {"num_hidden_layers": 1}
    small_bert.write(tmp_path, config, classifier=False)
    module, params = load_encoder(tmp_path, dtype=FLOAT32)
    ids, segments, where = inputs(config)
    calls = []

    def count(next_function, args, kwargs, context):
        if type(context.module).__name__ == "Dropout":
            calls.append(".".join(context.module.path[:-1]))
        return next_function(*args, **kwargs)

    key, args = jax.random.key(0), ({"params": params}, ids, segments)
    run = jax.jit(lambda m: m.apply(*args, where=where, rngs={"dropout": key}), static_argnums=0)
    with flax.linen.intercept_methods(count):
        dropped = run(module.clone(dropout=0.1))
        assert calls == [
            "embeddings",
            "encoder.layer.0.attention.self",
            "encoder.layer.0.attention.output",
            "encoder.layer.0.output",
        ]
        plain = run(module)
        assert len(calls) == 4  # a loaded network has none
    np.testing.assert_array_equal(dropped, run(module.clone(dropout=0.1)))
    assert np.abs(dropped - plain).max() > 0.01
