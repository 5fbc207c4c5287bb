"""Precision and form of trainings' products: float32 stays float32 in backward passes, too."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.bert.checkpoint import initialise, read_bert_config
from jaxrag.models.bert.dpr import DprNetwork
from jaxrag.models.bert.nomic import NomicEncoder, read_nomic_config
from jaxrag.models.bert.rewrite_ranker import RankerNetwork
from jaxrag.models.bert.sidr import SidrNetwork, pooled_logits
from jaxrag.models.layers import Embedding
from jaxrag.training.ppo.rollouts import Rollouts
from jaxrag.training.ppo.step import PPOTraining, make_step
from jaxrag.training.student.checkpoint import load_student, new_t5
from jaxrag.training.student.network import target_logprobs
from jaxrag.training.student.student import NewT5, encode
from tests.engines.tiny_model import write_tiny_model
from tests.models.bert import small_nomic
from tests.models.bert.small_bert import BERT

CONFIG = read_bert_config(BERT, source="test")
ENCODERS = {
    "DPR": DprNetwork(CONFIG),
    "SiDR": SidrNetwork(CONFIG, first=7),
    "ranker": RankerNetwork(CONFIG, pooling="pooler"),
    "ranker with dropout": RankerNetwork(CONFIG, dropout=0.1),
    "Nomic": NomicEncoder(read_nomic_config(small_nomic.CONFIG, source="test")),
}


def low_precision(function, *args):
    """(products of float32 numbers that are not of full precision, all products) of a program."""
    lowered = jax.jit(function).lower(*args).as_text()
    dots = re.findall(r"stablehlo\.dot_general.*", lowered)
    low = [dot for dot in dots if "xf32>" in dot and "precision = [HIGHEST, HIGHEST]" not in dot]
    return len(low), len(dots)


@pytest.mark.parametrize("name", ENCODERS)
def test_gradients_of_encoders(name):
    module = ENCODERS[name]
    ids, keys = jnp.zeros((2, 24), jnp.int32), {"dropout": jax.random.key(0)}

    def embed(params):
        return module.apply({"params": params}, ids, ids, where=ids == 0, rngs=keys)

    params = jax.eval_shape(
        lambda: initialise(module.clone(dropout=0.0) if "dropout" in name else module)
    )
    low, count = low_precision(jax.grad(lambda params: jax.jit(embed)(params).sum()), params)
    assert low == 0 and count > 20


def gradient_program(module, size):
    """The text of the program for a gradient of a network in bfloat16."""
    ids = jnp.ones((2, size), jnp.int32)

    def loss(params):
        return module.apply({"params": params}, ids, ids, where=ids > 0).sum()

    module = module.clone(dtype=jnp.bfloat16)
    return jax.jit(jax.grad(loss)).lower(jax.eval_shape(lambda: initialise(module))).as_text()


def test_rows_of_small_tables_are_not_added_one_by_one():
    """Positions and segments: a scatter would add all tokens of a batch to two rows."""
    words = dataclasses.replace(CONFIG, vocab_size=3000)
    text = gradient_program(DprNetwork(words), 24)
    assert re.findall(r"stablehlo\.scatter.*?-> tensor<(\d+)x", text, re.S) == ["3000"]


@pytest.mark.parametrize("rows", [2, 40])
def test_the_derivative_of_a_small_table(rows):
    """Against the sum of each row's cotangents in float64."""
    random = np.random.default_rng(0)
    table, ids = random.normal(size=(rows, 8)).astype(np.float32), random.integers(0, rows, (3, 50))
    weight = random.normal(size=(3, 50, 8)).astype(np.float32)
    module = Embedding(rows, 8)

    def loss(table):
        return (module.apply({"params": {"weight": table}}, ids) * weight).sum()

    wanted = np.zeros((rows, 8))
    np.add.at(wanted, ids, weight.astype(np.float64))
    np.testing.assert_allclose(jax.grad(loss)(table), wanted, rtol=0, atol=1e-5)


def test_products_with_the_word_table_have_one_dtype():
    """SiDR's in bfloat16: a product with the float32 table would be one in float32."""
    text = gradient_program(ENCODERS["SiDR"], 24)
    words = f"{CONFIG.vocab_size - 7}x{CONFIG.hidden_size}x"
    products = [line for line in text.splitlines() if "dot_general" in line]
    assert sum(f"{words}bf16" in line for line in products) == 2  # forward and backward
    operands = [line.split(" : (")[1].split("->")[0] for line in products]
    assert not any(f"{words}f32" in line for line in operands)


def test_logits_of_sidr_are_not_rounded():
    """To bfloat16, in which near maxima are ties and the order of the top entries is lost."""
    random = np.random.default_rng(0)
    hidden, table = (jnp.bfloat16(random.normal(size=size)) for size in ((2, 20, 32), (50, 32)))
    where = jnp.ones((2, 20), bool)
    found = pooled_logits(hidden, table.astype(jnp.float32), where=where)
    wanted = np.einsum("btd,vd->btv", np.float64(hidden), np.float64(table)).max(axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)  # bfloat16 has 2^-9


@pytest.fixture(scope="module", params=["t5", "decoder"])
def student(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("student")
    write_tiny_model(directory)
    if request.param == "decoder":
        return load_student(str(directory), max_source=8, max_target=6, dtype="float32")
    sizes = NewT5(str(directory), width=8, inner=8, heads=1, head_width=8, layers=1)
    return new_t5(sizes, max_source=8, max_target=6, dtype="float32")


@pytest.mark.parametrize("remat", [False, True])
def test_gradients_of_students(student, remat):
    pairs = encode(student, ["who", "cat"], ["the", "a mat"])

    def loss(params):
        return target_logprobs(student.module, params, pairs, remat=remat)[0].sum()

    low, count = low_precision(jax.grad(loss), student.params)
    assert low == 0 and count > 10


def test_updates_and_scores_of_ppo(student):
    step = make_step(student.module, PPOTraining(rollouts=2, batch=2))
    pairs = encode(student, ["who", "cat"], ["the", "a mat"])
    state = step.begin(student.params)
    assert low_precision(step.score, state.params, pairs)[0] == 0
    texts, tokens = jnp.zeros(2), jnp.zeros(pairs.target.shape)
    rollouts = Rollouts(pairs, texts, *[tokens] * 5)
    assert low_precision(step.update, state, rollouts, jnp.arange(2))[0] == 0
