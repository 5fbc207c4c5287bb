import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.functional.losses import Embedded, distillation, sidr_loss
from jaxrag.methods.r3.contrastive import ContrastiveBatch, Text, make_step, tokenize
from jaxrag.methods.r3.settings import SupervisedTraining, Update
from jaxrag.models.bert.checkpoint import initialise, read_bert_config
from jaxrag.models.bert.sidr import SidrNetwork, bag_of_tokens, keep_top
from jaxrag.models.bert.towers import tower
from jaxrag.training.step import make_mesh, microbatches
from tests.methods.r3 import small_sidr
from tests.methods.r3.small_sidr import BERT, FIRST, batch, flat
from tests.models.bert import small_bert


def vectors(module: Any, params: Any, text: Text) -> Any:
    where = np.arange(text.ids.shape[1]) < text.lengths[:, None]
    dense = module.apply({"params": params}, text.ids, np.zeros_like(text.ids), where=where)
    own = bag_of_tokens(text.ids, where=where, vocabulary=BERT["vocab_size"], first=FIRST)
    return dense, own


def plain_loss(module: Any, params: Any, data: ContrastiveBatch, settings: Update) -> Any:
    """The loss of the whole batch at once, straight from its definition."""
    n, m = data.passages.lengths.shape
    flat_ids, flat_lengths = data.passages.ids.reshape(n * m, -1), data.passages.lengths.ravel()

    def kept(dense: Any, own: Any) -> Any:
        return keep_top(dense, settings.top, tokens=own) if settings.top else dense

    order = np.r_[np.arange(n) * m, [i for i in range(n * m) if i % m]].astype(int)
    passages = Text(flat_ids[order], flat_lengths[order])
    queries, own_q = vectors(module, tower(params, "query"), data.queries)
    found, own_d = vectors(module, tower(params, "passage"), passages)
    queries, found = (x / settings.temperature**0.5 for x in (queries, found))
    if settings.objective == "kl":
        place = np.argsort(order).reshape(n, m)  # where each question's passages went
        found = kept(found, own_d)[place]
        scores = jnp.einsum("nv,nmv->nm", kept(queries, own_q), found)
        return distillation(scores, data.targets, temperature=settings.target_temperature)
    every = [
        Embedded(dense, kept(dense, own), own) for dense, own in ((queries, own_q), (found, own_d))
    ]
    value = sidr_loss(*every, form=settings.form)
    return value / n if settings.form == "paper" and settings.mean else value


@pytest.mark.parametrize(
    ("settings", "shared"),
    [
        (Update(clip=0, top=0, learning_rate=0.1), False),
        pytest.param(
            Update(form="released", top=6, learning_rate=0.1, temperature=3.0),
            True,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Update(
                objective="kl", target_temperature=0.7, temperature=2.0, top=6, learning_rate=0.1
            ),
            True,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["paper", "released", "kl"],
)
def test_a_step_follows_the_gradient_of_the_loss(
    tmp_path: Path, settings: Update, shared: bool
) -> None:
    """Microbatches of 2 questions against all 8 at once, and AdamW by hand."""
    module, params = small_sidr.towers(tmp_path, shared=shared)
    data = batch(8, 3)
    mesh = make_mesh(jax.devices()[:1])
    step = make_step(module, settings, steps=10, microbatch=2, mesh=mesh)
    state, figures = step.update(step.begin(params), data, 0)
    whole = jax.jit(jax.value_and_grad(lambda p: plain_loss(module, p, data, settings)))
    value, gradients = whole(params)
    np.testing.assert_allclose(figures["loss"], value, rtol=1e-5)
    norm = np.linalg.norm(flat(gradients))
    np.testing.assert_allclose(figures["norm"], norm, rtol=1e-4)
    # Adam's first step is rate * g / (|g| + 1e-8), with g the clipped gradient
    g = flat(gradients) * (min(1, settings.clip / norm) if settings.clip else 1)
    moved = flat(state.params) - flat(params)
    known = np.abs(g) > 1e-4 * np.abs(g).max()
    np.testing.assert_allclose(
        moved[known], (-0.1 * g / (np.abs(g) + 1e-8))[known], rtol=1e-2, atol=1e-6
    )
    assert known.mean() > 0.3


def test_devices_that_share_parameters_exchange_no_logits() -> None:
    """A compiler left alone sums, on each device, parts of the logits of all devices' rows, since
    the table of embeddings is cut along the axis that their product sums over."""
    sizes = {"vocab_size": 2053, "hidden_size": 128, "intermediate_size": 256}
    config = read_bert_config({**BERT, **sizes, "num_attention_heads": 2}, source="a test")
    module: Any = SidrNetwork(config, first=FIRST)
    one = jax.tree.map(
        lambda a: np.zeros(a.shape, a.dtype), jax.eval_shape(lambda: initialise(module))
    )
    step = make_step(module, Update(), steps=10, microbatch=64, mesh=make_mesh(fsdp=8))
    state = step.begin({"query": one, "passage": one})
    program = step.program.lower(state, microbatches(batch(64, 2), 64, step.mesh), np.int32(0))
    exchanged = re.findall(
        r"= f32\[([\d,]+)\]\S* (?:all-gather|all-reduce|reduce-scatter|collective-permute)\(",
        program.compile().as_text(),
    )
    most = max(math.prod(map(int, shape.split(","))) for shape in exchanged)
    assert most == 2053 * 128  # the table's entries


def test_a_warm_up_in_epochs_becomes_steps() -> None:
    # 1 epoch of 1,000 questions in batches of 128 are 7.8 steps
    how = SupervisedTraining(warmup_epochs=1, update=Update(warmup=3))
    assert how.update_over(1000).warmup == 8
    assert SupervisedTraining(update=Update(warmup=3)).update_over(1000).warmup == 3


def test_texts_are_padded_to_the_longest() -> None:
    found = tokenize(small_bert.tokenizer(BERT), ["the cat sat", "paris"], limit=64, pad_id=0)
    assert found.ids.shape == (2, 8) and found.lengths.tolist() == [5, 3]
    assert found.ids[1, 3:].tolist() == [0] * 5 and found.ids.dtype == np.int32
    cut = tokenize(small_bert.tokenizer(BERT), ["the cat " * 40], limit=20, pad_id=0)
    assert cut.ids.shape == (1, 20) and cut.lengths.tolist() == [20]
