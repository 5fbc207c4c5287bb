import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxrag.functional.losses import (
    Embedded,
    distillation,
    in_batch_negatives,
    sidr_loss,
    symmetric_contrastive,
)
from jaxrag.types import InputError


def batch(n: int, m: int, v: int = 12, seed: int = 0) -> tuple[Embedded, Embedded]:
    random = np.random.default_rng(seed)

    def texts(count: int) -> Embedded:
        dense = np.exp(random.normal(size=(count, v)) / 2)
        kept = dense >= np.sort(dense, axis=1)[:, -4:-3]
        return Embedded(*map(jnp.float32, (dense, dense * kept, random.random((count, v)) < 0.3)))

    return texts(n), texts(m)


def reference(queries: np.ndarray, passages: np.ndarray) -> float:
    """The two cross-entropies in float64, summed over the questions."""
    scores, total = np.float64(queries) @ np.float64(passages).T, 0.0
    for i in range(len(queries)):
        total -= scores[i, i] - np.log(np.exp(scores[i]).sum())
        total -= scores[i, i] - np.log(np.exp(scores[: len(queries), i]).sum())
    return total


def wanted(queries: Embedded, passages: Embedded, form: str) -> float:
    (dense, sparse, tokens), (d, s, t) = map(np.asarray, queries), map(np.asarray, passages)
    if form == "paper":
        return reference(sparse, s) + 0.5 * reference(sparse, t) + 0.5 * reference(tokens, s)
    pairs = ((sparse, d), (dense, s), (tokens, d), (dense, t))
    return sum(reference(a, b) for a, b in pairs) / 4 / len(dense)


def test_loss_worked_by_hand() -> None:
    # Scores of question 1: 1 (its positive), 0 (the other's) and 2 (a hard negative); of question
    # 2: 0, 1, 0. Over rows -log(e / (e + 1 + e^2)) = log(1 + 1/e + e) = 1.407606 and
    # -log(e / (e + 2)) = log(1 + 2/e) = 0.551445; over the two positives' columns, both have the
    # scores 1 and 0: log(1 + 1/e) = 0.313262.
    queries = jnp.eye(2)
    passages = jnp.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    found = symmetric_contrastive(queries, passages)
    np.testing.assert_allclose(found, [1.407606 + 0.313262, 0.551445 + 0.313262], atol=2e-6)
    found = in_batch_negatives(queries, passages)  # over the rows alone
    np.testing.assert_allclose(found, [1.407606, 0.551445], atol=2e-6)


@pytest.mark.parametrize("form", ["paper", "released"])
def test_the_loss_equals_the_reference(form: str) -> None:
    queries, passages = batch(4, 8)
    found = sidr_loss(queries, passages, form=form)  # type: ignore[arg-type]
    assert float(found) == pytest.approx(wanted(queries, passages, form), rel=1e-5)
    jitted = jax.jit(sidr_loss, static_argnames="form")(queries, passages, form=form)
    assert float(jitted) == pytest.approx(float(found), rel=1e-6)


@pytest.mark.parametrize("form", ["paper", "released"])
def test_gradients_equal_finite_differences(form: str) -> None:
    queries, passages = batch(3, 5, seed=1)
    found = jax.grad(lambda pair: sidr_loss(*pair, form=form))((queries, passages))  # type: ignore[arg-type]
    given = [np.float64(array) for array in (*queries, *passages)]
    for number, gradient in enumerate((*found[0], *found[1])):
        for at in np.random.default_rng(number).integers(0, gradient.shape, (6, 2)):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [array.copy() for array in given]
                moved[number][tuple(at)] += step
                ends.append(wanted(Embedded(*moved[:3]), Embedded(*moved[3:]), form))  # type: ignore[arg-type]
            slope = (ends[0] - ends[1]) / 2e-5
            assert float(gradient[tuple(at)]) == pytest.approx(slope, abs=2e-5, rel=1e-4)


def test_eight_devices_give_the_loss_of_one() -> None:
    queries, passages = batch(8, 16, seed=2)
    mesh = Mesh(np.array(jax.devices()[:8]), ("data",))
    whole = jax.jit(jax.value_and_grad(lambda q: sidr_loss(q, passages)))
    spread = jax.device_put(queries, NamedSharding(mesh, P("data")))
    one, many = whole(queries), whole(spread)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), one, many)


def test_large_scores_stay_finite() -> None:
    queries, passages = batch(3, 6)
    loss, slopes = jax.value_and_grad(
        lambda q: symmetric_contrastive(q * 1e4, passages.dense).sum()
    )(queries.dense)
    assert np.isfinite(loss) and np.isfinite(slopes).all()


def test_distillation_worked_by_hand() -> None:
    # P = (3/4, 1/4), R = (1/2, 1/2): 3/4 log 3/2 + 1/4 log 1/2 = 0.130812; the second question's R
    # is P: 0; the mean is half. A passage of probability 0 counts nothing.
    scores = jnp.array([[0.0, 0.0, -30.0], [1.0, 2.0, 3.0]])
    targets = jnp.array([[np.log(3), 0.0, -np.inf], [5.0, 6.0, 7.0]])
    assert float(distillation(scores, targets)) == pytest.approx(0.130812 / 2, abs=1e-6)
    # at temperature 2: P = (sqrt 3, 1) / (1 + sqrt 3) = (0.633975, 0.366025) of the first question
    warm = float(distillation(scores[:1], targets[:1], temperature=2.0))
    assert warm == pytest.approx(0.633975 * np.log(1.26795) + 0.366025 * np.log(0.73205), abs=1e-6)
    slopes = jax.grad(distillation, argnums=(0, 1))(scores, targets)
    np.testing.assert_allclose(slopes[0][0], [(0.5 - 0.75) / 2, (0.5 - 0.25) / 2, 0], atol=1e-6)
    assert not slopes[1].any()  # the language model is not trained


def test_invalid_input_is_refused() -> None:
    queries, passages = batch(4, 3)
    with pytest.raises(InputError, match="3 passages for 4 questions"):
        symmetric_contrastive(queries.dense, passages.dense)
    with pytest.raises(InputError, match="form is 'papre'"):
        sidr_loss(queries, queries, form="papre")  # type: ignore[arg-type]
