"""Training a ranker: what it is fed, that it learns, and that it goes on with the same bytes."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.functional.ranking import ranknet_loss
from jaxrag.methods.ars.ranker.data import (
    RankingExample,
    batches,
    in_pairs,
    make_batch,
    number_of,
    split,
    tokenised,
    without_pair,
)
from jaxrag.methods.ars.ranker.training import RankerTraining, make_step
from jaxrag.models.bert.rewrite_ranker import dropout_noise
from jaxrag.retrieval.rerank import CrossEncoderReranker
from jaxrag.training.step import make_mesh
from jaxrag.types import InputError
from tests.methods.ars.ranker import small_ranker


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_ranker.write(tmp_path_factory.mktemp("ranker"))


def settings(**more: Any) -> RankerTraining:
    told: dict[str, Any] = {
        "unit": "questions",
        "batch": 8,
        "microbatch": 2,
        "learning_rate": 5e-3,
        "save_every": 3,
    } | more
    return RankerTraining(**told)


def batch_of(some: list[RankingExample], ranker: CrossEncoderReranker) -> Any:
    return make_batch(tokenised(some, ranker), rewrites=4, limit=16, pad_id=0)


ONE = jax.devices()[:1]


def one_device() -> Any:
    return make_mesh(ONE)


def test_a_batch_has_every_pair_tokenised_and_padded(start: Path) -> None:
    ranker, some = small_ranker.begin(start), small_ranker.examples(3)
    batch = batch_of(some, ranker)
    assert batch.ids.shape == (3, 4, 8)
    assert batch.where.tolist() == [[True] * 4, [True] * 3 + [False], [True] * 4]
    for q, example in enumerate(some):
        assert batch.labels[q, : len(example.labels)].tolist() == list(example.labels)
        for r, rewrite in enumerate(example.rewrites):
            wanted = ranker.tokenizer(example.question, rewrite)
            n = batch.lengths[q, r]
            assert batch.ids[q, r, :n].tolist() == wanted.input_ids
            assert batch.segments[q, r, :n].tolist() == wanted.token_type_ids
            assert not batch.ids[q, r, n:].any() and not batch.segments[q, r, n:].any()
    assert batch.lengths[1, 3] == 0 and batch.labels[1, 3] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("ties", "dropout"), [("half", 0.4), ("drop", 0.0)])
def test_a_step_follows_the_gradient_of_the_loss(start: Path, ties: Any, dropout: float) -> None:
    """Microbatches of 1 question against the whole batch, question by question, and AdamW by
    hand.
    """
    ranker = small_ranker.begin(start)
    module: Any = ranker.module
    how = settings(
        batch=2,
        microbatch=1,
        ties=ties,
        dropout=dropout,
        encoder_dropout=0.0,
        weight_decay=0.0,
        clip=0.01,
        seed=7,
    )
    step = make_step(module, how, steps=10, mesh=one_device())
    batch = batch_of(small_ranker.examples(2), ranker)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(7), 5), 2)  # of each microbatch

    def whole(params: Any) -> Any:
        losses = []
        for q in range(2):
            where = jnp.arange(8) < batch.lengths[q][:, None]
            noise = dropout_noise(jax.random.split(keys[q])[0], (4, 24), dropout)
            scores = module.apply(
                {"params": params}, batch.ids[q], batch.segments[q], where=where, noise=noise
            )[:, 0]
            n = int(batch.where[q].sum())
            losses.append(ranknet_loss(scores[:n], jnp.asarray(batch.labels[q, :n]), ties=ties))
        return sum(losses) / 2

    value, gradients = jax.jit(jax.value_and_grad(whole))(ranker.params)
    state, figures = step.update(step.begin(ranker.params), batch, 5)
    np.testing.assert_allclose(figures["loss"], value, rtol=1e-5)
    flat = lambda tree: np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])  # noqa: E731
    norm = np.linalg.norm(flat(gradients))
    np.testing.assert_allclose(figures["norm"], norm, rtol=1e-4)
    assert norm > 0.01
    g = flat(gradients) * 0.01 / norm  # Adam's first step is rate * g / (|g| + 1e-8), g clipped
    moved, known = flat(state.params) - flat(ranker.params), np.abs(g) > 1e-3 * np.abs(g).max()
    np.testing.assert_allclose(moved[known], (-5e-3 * g / (np.abs(g) + 1e-8))[known], rtol=2e-2)
    assert known.mean() > 0.1


@pytest.mark.parametrize("dropped", ["dropout", "encoder_dropout"])
def test_dropout_differs_by_step(start: Path, dropped: str) -> None:
    ranker, module = small_ranker.begin(start), small_ranker.begin(start).module
    batch = batch_of([small_ranker.examples(1)[0]] * 8, ranker)
    other = {"dropout", "encoder_dropout"} - {dropped}
    how = settings(**dict.fromkeys(other, 0.0))
    step = make_step(module, how, steps=3, mesh=one_device())  # type: ignore[arg-type]

    def loss(number: int) -> float:
        return float(step.update(step.begin(ranker.params), batch, number)[1]["loss"])

    assert loss(0) == loss(0) != loss(1)


def test_questions_without_a_pair_are_counted(start: Path) -> None:
    ranker = small_ranker.begin(start)
    labels = [(1, 1, 1, 1), (0, 1, 0, 0), (2, 2, 2, 2), (0, 0, 0, 1)]
    words = ("cat", "mat", "rug", "river")
    some = [RankingExample(f"q{i}", "the cat", words, row) for i, row in enumerate(labels)]
    batch = batch_of(some, ranker)
    assert without_pair(batch, "drop") == 2 and without_pair(batch, "half") == 0
    # what is not there has label 0, which makes no pair
    short = batch_of([RankingExample("q", "the cat", words[:2], (1, 1))], ranker)
    assert without_pair(short, "drop") == 1
    module: Any = ranker.module
    how = settings(dropout=0.0, encoder_dropout=0.0, batch=2, ties="drop")
    step = make_step(module, how, steps=1, mesh=one_device())
    figures = {}
    for rows in ((0, 2), (1, 1), (0, 1)):
        part = batch_of([some[i] for i in rows], ranker)
        figures[rows] = step.update(step.begin(ranker.params), part, 0)[1]
    assert [f["without_pair"] for f in figures.values()] == [2, 0, 1]
    assert figures[0, 2]["loss"] == 0 and figures[0, 2]["norm"] == 0
    np.testing.assert_allclose(figures[0, 1]["loss"], figures[1, 1]["loss"] / 2, rtol=1e-6)


def test_held_out_questions_depend_on_the_seed(start: Path) -> None:
    some = small_ranker.examples(40)
    known, held = split(some, 0.25)
    assert len(held) == 10 and len(known) == 30
    assert sorted([*known, *held]) == sorted(some) and held == [e for e in some if e in held]
    assert split(some[::-1], 0.25)[1] == held[::-1]
    assert split(some, 0.25, seed=1)[1] != held
    # of 8 more questions few move
    more = split(small_ranker.examples(48), 12 / 48)[1]
    assert len({e.question_id for e in more} & {e.question_id for e in held}) >= 6
    for share in (0.01, 0.99):
        with pytest.raises(InputError, match=f"held_out is {share} of 40 questions"):
            split(some, share)


def test_a_batch_of_pairs_is_of_two_rewrites_of_one_question(start: Path) -> None:
    ranker = small_ranker.begin(start)
    some = [
        RankingExample("a", "the cat", ("cat", "mat", "rug"), (0, 1, 1)),
        RankingExample("b", "the mat", ("river", "cat"), (2, 0)),
    ]
    tokens = tokenised(some, ranker)
    every, varied = in_pairs(tokens, "half"), in_pairs(tokens, "drop")
    # pairs of a: (0, 1), (0, 1) and the tie (1, 1); of b: (2, 0)
    assert [one.labels for one in every] == [(0, 1), (0, 1), (1, 1), (2, 0)]
    assert [one.labels for one in varied] == [(0, 1), (0, 1), (2, 0)]
    assert every[2].pairs == tokens[0].pairs[1:]
    assert (number_of(some, "pairs", "half"), number_of(some, "pairs", "drop")) == (4, 3)
    batch = next(batches(some, ranker, 2, seed=0, unit="pairs"))
    assert batch.ids.shape[:2] == (2, 2) and batch.where.all()
    more = small_ranker.examples(12)  # 6 of four rewrites and 6 of three: 6 * 6 + 6 * 3 pairs
    assert [number_of(more, unit, "half") for unit in ("questions", "pairs")] == [12, 54]
    with pytest.raises(InputError, match="3 pairs to train on, fewer than a batch of 4"):
        batches(some, ranker, 4, seed=0, unit="pairs", ties="drop")


def test_pairs_have_the_mean_loss_of_their_question(start: Path) -> None:
    """All pairs of a question in one batch of pairs, against the question as one example."""
    ranker, one = small_ranker.begin(start), small_ranker.examples(1)
    module: Any = ranker.module
    losses = []
    for batch in (
        batch_of(one, ranker),
        make_batch(in_pairs(tokenised(one, ranker), "half"), rewrites=2, limit=16, pad_id=0),
    ):
        size = len(batch.ids)
        how = settings(batch=size, microbatch=size, dropout=0.0, encoder_dropout=0.0)
        step = make_step(module, how, steps=1, mesh=one_device())
        losses.append(float(step.update(step.begin(ranker.params), batch, 0)[1]["loss"]))
    assert len(one[0].rewrites) == 4 and losses[0] == pytest.approx(losses[1], rel=1e-5)
