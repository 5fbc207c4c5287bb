"""DPR: its loss and step, its checkpoint as an index, and R3's training from it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.methods.r3 import jobs as r3_jobs
from jaxrag.methods.r3.contrastive import ContrastiveBatch, Text, make_step
from jaxrag.methods.r3.search import StepIndex, VectorSearch, step_name
from jaxrag.methods.r3.settings import Update
from jaxrag.models.bert.dpr import load_dpr
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.dense.dpr import Dpr, DprEncoder
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import dpr
from jaxrag.training.step import make_mesh
from jaxrag.types import InputError, Passage
from tests.methods.r3.small_sidr import BERT, batch, flat
from tests.models.bert import small_bert
from tests.retrieval.fakes import embed_passages
from tests.training import train_job

FLOAT32 = jnp.dtype("float32")


def vectors(module: Any, params: Any, text: Text) -> Any:
    where = np.arange(text.ids.shape[1]) < text.lengths[:, None]
    return module.apply({"params": params}, text.ids, np.zeros_like(text.ids), where=where)


def plain_loss(module: Any, params: Any, data: ContrastiveBatch, settings: Update) -> Any:
    """The loss of the whole batch at once, straight from its definition."""
    n, m = data.passages.lengths.shape
    passages = Text(data.passages.ids.reshape(n * m, -1), data.passages.lengths.ravel())
    q = vectors(module, params["query"], data.queries)
    d = vectors(module, params["passage"], passages)
    scores = q @ d.T / settings.temperature  # [n, nm]
    total = 0.0
    for i in range(n):
        right = scores[i, i * m]
        total += jax.nn.logsumexp(scores[i]) - right
        if settings.form == "paper":
            total += jax.nn.logsumexp(scores[:, i * m]) - right
    return total / n


@pytest.mark.parametrize(
    "settings",
    [
        Update(form="dpr", clip=0, learning_rate=0.1, temperature=2.0),
        pytest.param(Update(clip=0, learning_rate=0.1), marks=pytest.mark.slow),
    ],
    ids=["dpr", "paper"],
)
def test_a_step_follows_the_gradient_of_the_loss(tmp_path: Path, settings: Update) -> None:
    """Microbatches of 2 questions against all 8 at once, and AdamW by hand."""
    path = small_bert.write(tmp_path / "bert", BERT, classifier=False)
    module, params = load_dpr(path, dtype=FLOAT32)
    params = jax.tree.map(lambda x: x * 0.4, params)
    data, mesh = batch(8, 3), make_mesh(jax.devices()[:1])
    step = make_step(module, settings, steps=10, microbatch=2, mesh=mesh)
    state, figures = step.update(step.begin(params), data, 0)
    value, gradients = jax.jit(
        jax.value_and_grad(lambda p: plain_loss(module, p, data, settings))
    )(params)  # fmt: skip
    np.testing.assert_allclose(figures["loss"], value, rtol=1e-5)
    g, moved = flat(gradients), flat(state.params) - flat(params)
    np.testing.assert_allclose(figures["norm"], np.linalg.norm(g), rtol=1e-4)
    # Adam's first step is rate * g / (|g| + 1e-8)
    known = np.abs(g) > 1e-4 * np.abs(g).max()
    np.testing.assert_allclose(
        moved[known], (-0.1 * g / (np.abs(g) + 1e-8))[known], rtol=1e-2, atol=1e-6
    )
    assert known.mean() > 0.3


def corpus(directory: Path) -> Passages:
    words = small_bert.WORDS
    return write_passages(
        directory / "passages",
        (Passage(f"p{i}", words[i % 5] * (i % 2), f"{w} {words[i * 5 % 17]}")
         for i, w in enumerate(words)),
    )  # fmt: skip


def test_a_checkpoint_of_two_towers_is_read_as_published_ones_are(tmp_path: Path) -> None:
    """With a passage's title as the first text of a pair, or without title."""
    path = small_bert.write(tmp_path / "bert", BERT, classifier=False)
    begun = Dpr(str(path), max_length=24).encoder()
    params = {side: jax.tree.map(lambda x, by=by: x * by, begun.params[side])
              for side, by in (("query", 0.9), ("passage", 1.1))}  # fmt: skip
    encoder = begun.with_params(params, "changed")
    encoder.write(tmp_path / "made", params, begun_with=path)
    made = tmp_path / "made"
    published = dpr(str(made / "query"), str(made / "passage"))
    other = dataclasses.replace(published, max_length=24).load()
    texts, passages = ["the cat sat", "money of paris"], corpus(tmp_path)
    np.testing.assert_array_equal(encoder.embed(texts), other.embed(texts))
    some = passages.get(range(len(passages)))
    np.testing.assert_array_equal(embed_passages(encoder, some), embed_passages(other, some))
    assert np.abs(encoder.embed(texts) - begun.embed(texts)).max() > 0.01

    own: Any = Dpr(str(made), max_length=24)
    index = own.open(passages, tmp_path / "cache")
    exact: Any = Exact(dataclasses.replace(published, max_length=24))
    assert index.identity == exact.open(passages, tmp_path / "cache").identity
    assert own.encoder().identity != begun.identity
    found = index.search(index.embed(texts), 3)
    scores = (
        np.float64(other.embed(texts)) @ np.float64(np.float16(embed_passages(other, some))).T
    )  # stored as float16
    assert [[*one.ids] for one in found] == np.argsort(-scores, axis=1, kind="stable")[
        :, :3
    ].tolist()


def test_towers_of_different_shapes_are_refused(tmp_path: Path) -> None:
    for side, more in (("query", {}), ("passage", {"layer_norm_eps": 1e-6})):
        small_bert.write(tmp_path / side, BERT | more, classifier=False)
    with pytest.raises(InputError, match="differ in their settings"):
        load_dpr(tmp_path, dtype=FLOAT32)


def test_vectors_are_those_of_the_last_indexing(tmp_path: Path) -> None:
    """Questions have the current parameters, passages those of the last multiple of 2 steps."""
    path = small_bert.write(tmp_path / "bert", BERT, classifier=False)
    begun, passages = DprEncoder.load(path, max_length=24), corpus(tmp_path)

    def at(step: int) -> DprEncoder:
        params = jax.tree.map(lambda x: x * (1 + step / 10), begun.params)
        return begun.with_params(params, step_name(step))

    searcher = VectorSearch(begun, passages, tmp_path / "indexes", every=2, m=3)
    every = passages.get(range(len(passages)))
    for step, indexed in ((0, 0), (1, 0), (2, 2), (3, 2)):
        [found] = StepIndex(searcher, at(step), step).search_texts(["the cat sat"], 2)
        scores = (
            np.float64(at(step).embed(["the cat sat"]))
            @ np.float64(np.float16(embed_passages(at(indexed), every))).T
        )  # stored as float16
        assert [*found.ids] == np.argsort(-scores[0], kind="stable")[:2].tolist()
        np.testing.assert_allclose(found.scores, -np.sort(-scores[0])[:2], rtol=1e-5)
    assert sorted(path.name for path in (tmp_path / "indexes").iterdir()) == ["0", "2"]
    one, other = (StepIndex(searcher, at(1), step).identity for step in (1, 2))
    assert one != other


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    made = train_job.reindexed(tmp_path)
    with pytest.raises(InputError, match="search is 'late'; DPR has vectors only"):
        dataclasses.replace(made, search="late")
    job = train_job.dpr(tmp_path)
    with pytest.raises(InputError, match="DPR is not evaluated in its training"):
        dataclasses.replace(job, evaluation_data=(made.evaluation_data,))
    module, _ = load_dpr(job.start.located(), dtype=FLOAT32)
    mesh = make_mesh(jax.devices()[:1])
    with pytest.raises(InputError, match="form is 'released'; for DPR it is 'dpr' or 'paper'"):
        make_step(module, Update(form="released"), steps=1, microbatch=1, mesh=mesh)


def test_epochs_between_indexings_are_passes_over_the_questions_with_pools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = train_job.reindexed(tmp_path)
    batches = dataclasses.replace(made.training, batch=2)
    job = dataclasses.replace(made, training=batches, reindex_epochs=1.5)
    seen = []

    def train(pooled: Any, passages: Any, encoder: Any, searcher: Any, *_: Any, **__: Any) -> Any:
        seen.append((len(pooled), searcher.every))
        raise KeyboardInterrupt

    monkeypatch.setattr(r3_jobs, "load_model", lambda *_: train_job.Coin())
    monkeypatch.setattr(r3_jobs.training, "train", train)
    with pytest.raises(KeyboardInterrupt):
        job.execute(tmp_path / "run")
    [(questions, every)] = seen
    assert questions > 4 and every == round(1.5 * questions / 2)
    with pytest.raises(InputError, match="reindex_epochs is -1"):
        dataclasses.replace(made, reindex_epochs=-1)


def test_a_job_trains_and_its_checkpoint_is_searched(tmp_path: Path) -> None:
    found = train_job.execute("reindexed", tmp_path, "inputs")
    losses = [line["loss"] for line in found["metrics"] if "loss" in line]
    assert len(losses) == 3 and np.isfinite(losses).all()
    trained = tmp_path / "run" / "retriever"
    index: Any = Dpr(str(trained), max_length=24).open(corpus(tmp_path), tmp_path / "cache")
    assert len(index.search(index.embed(["the cat"]), 3)[0].ids) == 3
    assert len(found["weights"]) == 2 and len({*found["weights"]}) == 2
    # evaluated before the first step and after the last
    lines = [line for line in found["metrics"] if "rag_accuracy" in json.dumps(line)]
    assert [line["step"] for line in lines] == [0, 3]
    indexes = sorted(path.name for path in (tmp_path / "run" / "indexes").iterdir())
    assert indexes == ["0", "2"]
