"""Trainings in float32 multiply in float32 on every device, in their backward passes, too."""

import re

import jax
import jax.numpy as jnp
import pytest

from jaxrag.models.bert.checkpoint import initialise, read_bert_config
from jaxrag.models.bert.dpr import DprNetwork
from jaxrag.models.bert.nomic import NomicEncoder, read_nomic_config
from jaxrag.models.bert.rewrite_ranker import RankerNetwork
from jaxrag.models.bert.sidr import SidrNetwork
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


@pytest.mark.parametrize("inner", [lambda function: function, jax.jit], ids=["plain", "jit"])
@pytest.mark.parametrize("name", ENCODERS)
def test_gradients_of_encoders(name, inner):
    module = ENCODERS[name]
    ids, keys = jnp.zeros((2, 24), jnp.int32), {"dropout": jax.random.key(0)}

    def embed(params):
        return module.apply({"params": params}, ids, ids, where=ids == 0, rngs=keys)

    params = jax.eval_shape(
        lambda: initialise(module.clone(dropout=0.0) if "dropout" in name else module)
    )
    low, count = low_precision(jax.grad(lambda params: inner(embed)(params).sum()), params)
    assert low == 0 and count > 20


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
