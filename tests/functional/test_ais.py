import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxrag.functional import ais

FEW = settings(max_examples=40, deadline=None)
EPS = float(np.finfo(np.float32).eps)
EDGES = np.array([-1, -1 + EPS / 2, -0.5, -0.0, 0, 1e-8, 0.5, 1 - EPS / 2, 1], np.float32)
COSINES = hnp.arrays(
    np.float32,
    8,
    elements=st.one_of(st.sampled_from(EDGES.tolist()), st.floats(-1, 1, width=32)),
)
POOL = 10


def close(ours, reference, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(np.asarray(ours, np.float64), reference, rtol=0, atol=tolerance)


def angle64(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Angle in float64 from the sine and cosine parts, well-conditioned everywhere."""
    u, v = (
        x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (u.astype(float), v.astype(float))
    )
    along = (u * v).sum(-1)
    return np.arctan2(np.linalg.norm(v - along[..., None] * u, axis=-1), along)


def select64(scores, ids, where, k) -> tuple[list[int], list[int]]:
    """Positions and ids kept, by the plainest Python."""
    first: dict[int, int] = {}
    for position, (id_, real) in enumerate(zip(ids, where, strict=True)):
        if real:
            first.setdefault(id_, position)
    best = sorted(first.values(), key=lambda position: (-scores[position], position))[:k]
    padding = [-1] * (k - len(best))
    return best + padding, [ids[position] for position in best] + padding


def test_scores_worked_by_hand() -> None:
    # theta1 = 60 degrees, theta2 = 60 degrees: cos 120 = -1/2, sum of cosines 1.
    third, half, sixth = jnp.float32([math.pi / 3, math.pi / 2, math.pi / 6])
    close(ais.angle_sum(third, third), -0.5)
    close(ais.cosine_sum(third, third), 1.0)
    # theta1 = 90, theta2 = 30 degrees: cos 120 again, though the cosines sum to 0.866.
    close(ais.angle_sum(half, sixth), -0.5)
    close(ais.cosine_sum(half, sixth), math.sqrt(0.75))
    # theta0 = 1: alpha = 0.455 + 0.058 = 0.513.
    close(ais.dynamic_weight(jnp.float32(1)), 0.513)
    close(ais.dynamic_weight(jnp.float32(1), alpha0=0.45520, alpha1=0.05848), 0.51368)
    # alpha = 1/2: cos of the mean angle, cos 60 = 1/2.
    close(ais.dynamic_score(half, sixth, jnp.float32(0.5)), 0.5)
    # alpha = 1 leaves theta1, alpha = 0 theta2.
    close(ais.dynamic_score(third, half, jnp.float32(1)), 0.5)
    close(ais.dynamic_score(third, half, jnp.float32(0)), 0.0)


def test_identical_and_opposite() -> None:
    zero, pi = jnp.float32(0), jnp.float32(math.pi)
    close(ais.angle_sum(zero, zero), 1.0)
    close(ais.angle_sum(pi, pi), 1.0)  # 2 pi
    close(ais.angle_sum(zero, pi), -1.0)
    close(ais.cosine_sum(zero, zero), 2.0)
    close(ais.dynamic_score(pi, pi, jnp.float32(0.4)), -1.0)


@FEW
@given(COSINES, COSINES, st.sampled_from(EDGES.tolist()))
def test_scores_equal_float64(s1, s2, s0) -> None:
    theta1, theta2 = np.arccos(s1.astype(float)), np.arccos(s2.astype(float))
    angles = jnp.float32(theta1), jnp.float32(theta2)
    # PAIRS eq 4 as printed, from cosines
    sines = np.sin(theta1) * np.sin(theta2)
    close(ais.angle_sum(*angles), np.cos(theta1) * np.cos(theta2) - sines)
    close(ais.cosine_sum(*angles), s1.astype(float) + s2)
    alpha = 0.455 + 0.058 * np.arccos(s0)
    dynamic = jax.jit(ais.dynamic_score)(*angles, ais.dynamic_weight(jnp.float32(np.arccos(s0))))
    close(dynamic, np.cos(alpha * theta1 + (1 - alpha) * theta2))


@FEW
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e-7, 1e-4, 1e-2, 1.0]), st.booleans())
def test_angle_equals_float64_however_small(seed: int, apart: float, opposite: bool) -> None:
    rng = np.random.default_rng(seed)
    u = rng.normal(size=384).astype(np.float32)
    v = ((u + apart * rng.normal(size=384)) * (-2.0 if opposite else 2.0)).astype(np.float32)
    close(jax.jit(ais.angle)(jnp.array(u), jnp.array(v)), angle64(u, v))


def test_angle_degenerate() -> None:
    u, zero = jnp.array([3.0, 4.0]), jnp.zeros(2)
    assert ais.angle(u, u) == 0.0
    close(ais.angle(u, -u), np.pi)
    close([ais.angle(u, zero), ais.angle(zero, u), ais.angle(zero, zero)], [np.pi / 2] * 3)
    for v in (u, -u, zero):
        for gradient in jax.grad(ais.angle, argnums=(0, 1))(u, v):
            assert bool(jnp.isfinite(gradient).all())


@pytest.mark.parametrize("length", [1e-30, 1e-20, 1e20, 1e30, 3e38])
def test_angle_does_not_depend_on_the_lengths(length: float) -> None:
    # 3-4-5: the cosine between (3, 4) and (4, 3) is 24 / 25; the squares of 1e20 and 1e-30 leave
    # the range of float32.
    one, other = np.array([0.6, 0.8], np.float32), np.array([0.8, 0.6], np.float32)
    u, v = jnp.float32(length) * one, jnp.float32(length) * other
    assert ais.angle(u, u) == 0.0
    close(ais.angle(u, -u), np.pi)
    close(jax.jit(ais.angle)(u, v), math.acos(24 / 25))
    close(ais.angle(u, jnp.array(other)), math.acos(24 / 25))
    # The gradient by v is (0.6, -0.8) / |v|: away from u, at right angles to v. At 3e38 it is
    # below the smallest normal float32.
    if length < 1e38:
        gradient = np.asarray(jax.grad(ais.angle, argnums=1)(u, v), np.float64)
        close(gradient * length, [0.6, -0.8], 1e-5)


def test_angle_of_nan_is_nan() -> None:
    u, zero = jnp.array([1.0, 0.0]), jnp.zeros(2)
    for bad in (jnp.array([jnp.nan, 0.0]), jnp.array([1.0, jnp.nan]), jnp.array([jnp.inf, 1.0])):
        for other in (u, zero, bad):
            assert jnp.isnan(ais.angle(bad, other)) and jnp.isnan(ais.angle(other, bad))


def test_select_worked_by_hand() -> None:
    scores = jnp.array([0.1, 0.9, 0.5, 0.9, 0.7, 0.8])
    ids = jnp.array([7, 3, 7, 3, 5, 9])
    # Id 3 and id 7 count at their first place; 9 is masked: 3 (0.9), 5 (0.7), 7 (0.1).
    kept = ais.select(scores, ids, k=4, where=jnp.array([1, 1, 1, 1, 1, 0], bool))
    assert kept.ids.tolist() == [3, 5, 7, -1]
    assert kept.positions.tolist() == [1, 4, 0, -1]
    np.testing.assert_array_equal(kept.scores, np.float32([0.9, 0.7, 0.1, -np.inf]))


def test_select_masked_first_occurrence_does_not_count() -> None:
    kept = ais.select(jnp.array([0.9, 0.2]), jnp.array([4, 4]), k=1, where=jnp.array([False, True]))
    assert (kept.ids.tolist(), kept.positions.tolist()) == ([4], [1])


def test_select_ties_and_odd_scores() -> None:
    scores = jnp.array([-jnp.inf, jnp.nan, -0.0, 0.0, 1.0])
    kept = ais.select(scores, jnp.arange(5), k=7)
    assert kept.ids.tolist() == [4, 2, 3, 0, 1, -1, -1]
    # A candidate that scores -inf is still one, padding before it is not.
    kept = ais.select(jnp.array([1, -jnp.inf]), jnp.arange(2), k=1, where=jnp.array([False, True]))
    assert (kept.ids.tolist(), kept.scores.tolist()) == ([1], [-np.inf])
    nothing = ais.select(scores, jnp.arange(5), k=2, where=jnp.zeros(5, bool))
    assert nothing.ids.tolist() == nothing.positions.tolist() == [-1, -1]
    assert nothing.scores.tolist() == [-np.inf, -np.inf]


@FEW
@given(
    hnp.arrays(np.float32, POOL, elements=st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0])),
    hnp.arrays(np.int32, POOL, elements=st.integers(0, 6)),
    hnp.arrays(np.bool_, POOL),
    st.sampled_from([1, 3, POOL, 13]),
)
def test_select_equals_plain_python(scores, ids, where, k) -> None:
    kept = ais.select(jnp.array(scores), jnp.array(ids), k=k, where=jnp.array(where))
    positions, kept_ids = select64(scores.tolist(), ids.tolist(), where.tolist(), k)
    assert (kept.positions.tolist(), kept.ids.tolist()) == (positions, kept_ids)


def pools(count: int, seed: int = 0):
    """Questions with candidates of which some are the query, the pseudo-context, or opposite."""
    rng = np.random.default_rng(seed)
    query, pseudo = rng.normal(size=(2, count, 64)).astype(np.float32)
    passages = rng.normal(size=(count, POOL, 64)).astype(np.float32)
    passages[:, 0], passages[:, 1], passages[:, 2] = query, -pseudo, 3 * query
    passages[:, 3:5] = query[:, None] + 0.3 * passages[:, 3:5]
    pseudo[0] = query[0]
    ids = rng.integers(0, 8, size=(count, POOL)).astype(np.int32)
    where = rng.random((count, POOL)) < 0.8
    where[-1] = False
    return query, pseudo, passages, ids, where


def scores64(query, pseudo, passages, score: ais.Score) -> np.ndarray:
    theta0 = angle64(query, pseudo)[:, None]
    theta1, theta2 = angle64(query[:, None], passages), angle64(pseudo[:, None], passages)
    if score == "cosine_sum":
        return np.cos(theta1) + np.cos(theta2)
    alpha = 0.455 + 0.058 * theta0 if score == "dynamic" else 1.0
    return np.cos(alpha * theta1 + (1 - alpha if score == "dynamic" else 1.0) * theta2)


@pytest.mark.parametrize("score", ["angle_sum", "cosine_sum", "dynamic"])
def test_select_passages_equals_float64_and_vmaps(score: ais.Score) -> None:
    arrays = pools(6)
    batched = jax.vmap(
        lambda q, p, d, i, w: ais.select_passages(q, p, d, i, k=3, where=w, score=score)
    )(*map(jnp.array, arrays))
    query, pseudo, passages, ids, where = arrays
    expected = scores64(query, pseudo, passages, score)
    close(batched.scores, expected)
    close(batched.s0, np.cos(angle64(query, pseudo)))
    close(batched.s1, np.cos(angle64(query[:, None], passages)))
    close(batched.s2, np.cos(angle64(pseudo[:, None], passages)))
    for row in range(6):
        # Ranked by our scores: candidates 0 and 2 are equal but for rounding.
        ours = np.asarray(batched.scores[row]).tolist()
        positions, kept = select64(ours, ids[row].tolist(), where[row].tolist(), 3)
        assert batched.selection.positions[row].tolist() == positions
        assert batched.selection.ids[row].tolist() == kept


def test_a_nan_passage_is_selected_last() -> None:
    # The real passage is nearly opposite to both: its cosines are below 0, those of a zero vector.
    query, pseudo = jnp.array([1.0, 0.0]), jnp.array([1.0, 0.1])
    passages = jnp.array([[jnp.nan, 0.0], [-1.0, 0.1]])
    for score, k in (("cosine_sum", 2), ("angle_sum", 2), ("dynamic", 2), ("dynamic", 1)):
        pool = ais.select_passages(
            query, pseudo, passages, jnp.arange(2), k=k, where=jnp.ones(2, bool), score=score
        )
        assert pool.selection.ids.tolist() == [1, 0][:k]
        assert jnp.isnan(pool.scores[0]) and jnp.isfinite(pool.scores[1])


def test_angle_sum_of_vectors_is_that_of_cosines() -> None:
    query, pseudo, passages, ids, where = (jnp.array(array[2]) for array in pools(3))
    pool = ais.select_passages(query, pseudo, passages, ids, k=3, where=where)
    # Cosines of nearly equal vectors say less of the angle than the vectors: 1e-3, not 1e-6.
    s1, s2 = np.float64(pool.s1), np.float64(pool.s2)
    close(s1 * s2 - np.sqrt((1 - s1**2) * (1 - s2**2)), pool.scores, 1e-3)


def test_best_weight_and_its_fit_worked_by_hand() -> None:
    # theta1 = 1, theta2 = 3: alpha = 3 / 4; equal angles: 1 / 2, also if both are 0
    theta1, theta2 = jnp.array([1.0, 2.0, 0.0]), jnp.array([3.0, 2.0, 0.0])
    close(ais.best_weight(theta1, theta2), [0.75, 0.5, 0.5])
    # means of x and y are 2 and 3; sum of products 2, of squares 2: slope 1, intercept 1
    slope, intercept = ais.fit_alpha(jnp.array([1.0, 2.0, 3.0]), jnp.array([2.0, 3.0, 4.0]))
    close((slope, intercept), [1, 1])
    slope, intercept = ais.fit_alpha(jnp.array([0.5, 0.5]), jnp.array([0.2, 0.6]))
    close((slope, intercept), [0, 0.4])  # no slope can be told


@FEW
@given(hnp.arrays(np.float64, (20, 2), elements=st.floats(0.1, 3)))
def test_fit_of_alpha_is_least_squares(pairs: np.ndarray) -> None:
    theta0, alpha = pairs.T
    if np.ptp(theta0) < 0.1:
        return
    reference = np.polyfit(theta0, alpha, 1)
    close(ais.fit_alpha(jnp.asarray(theta0), jnp.asarray(alpha)), reference, 2e-4)
