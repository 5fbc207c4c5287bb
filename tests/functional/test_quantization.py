import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.functional.quantization import anisotropic_codes, anisotropic_weight, nearest_center


def test_nearest_center_by_hand() -> None:
    centers = np.array([[0, 0], [3, 0], [0, 9]], np.float32)
    vectors = np.array([[1, 0], [2, 0], [2, 8], [0, 4.4]], np.float32)
    assert nearest_center(vectors, centers).tolist() == [0, 1, 2, 0]  # 4.4 < 9 / 2


def test_weight_by_hand() -> None:
    # (d - 1) T^2 / (|x|^2 - T^2) - 1 with d = 26, T = 0.2: 25 * 0.04 / 0.96 - 1 = 1 / 24
    weights = anisotropic_weight(jnp.array([1.0, 0.04, 0.01, 100.0]), 26, 0.2)
    assert weights[0] == pytest.approx(1 / 24, rel=1e-5)
    assert weights[1:].tolist() == [0, 0, 0]  # no longer than T; and 1 / 99.96 < 1


def test_codes_by_hand() -> None:
    # One block of one number, x = 0.6 of unit direction: both centers are 0.6 and 0.4 away.
    # Two blocks: errors (0.4, 0.4) weigh 0.32 + w (0.4 u + 0.4 u)^2, but (0.4, -0.6) weigh
    # 0.52 + w (0.4 u - 0.6 u)^2; u = 1 / sqrt(2): 0.32 + 0.32 w against 0.52 + 0.02 w.
    targets = np.array([[[0.4], [0.4]]], np.float32)
    directions = np.full((1, 2, 1), 0.5**0.5, np.float32)
    centers = np.array([[[0], [1]], [[0], [1]]], np.float32)
    for weight, codes in ((0.0, [0, 0]), (0.6, [0, 0]), (0.7, [1, 0])):  # equal at w = 2/3
        found = anisotropic_codes(targets, directions, np.array([weight]), centers)
        assert sorted(found[0].tolist(), reverse=True) == codes


def test_codes_without_weight_are_the_nearest_centers() -> None:
    rng = np.random.default_rng(0)
    targets, centers = rng.standard_normal((50, 6, 3)), rng.standard_normal((6, 16, 3))
    found = anisotropic_codes(*(np.float32(a) for a in (targets, targets, np.zeros(50), centers)))
    distances = ((targets[:, :, None] - centers) ** 2).sum(axis=-1)
    assert np.array_equal(found, distances.argmin(axis=-1))


def test_descent_never_raises_the_loss_and_gets_near_the_optimum() -> None:
    rng = np.random.default_rng(1)
    n, m, c, s = 40, 4, 4, 2
    targets = rng.standard_normal((n, m, s)).astype(np.float32)
    directions = targets / np.linalg.norm(targets, axis=(1, 2), keepdims=True)
    centers = rng.standard_normal((m, c, s)).astype(np.float32)
    weights = np.full(n, 5.0, np.float32)

    def loss(codes: np.ndarray) -> np.ndarray:
        errors = targets - centers[np.arange(m), codes]
        along = (errors * directions).sum(axis=(1, 2))
        return (errors**2).sum(axis=(1, 2)) + weights * along**2

    losses = [
        loss(np.asarray(anisotropic_codes(targets, directions, weights, centers, sweeps=sweeps)))
        for sweeps in range(5)
    ]
    for before, after in itertools.pairwise(losses):
        assert (after <= before + 1e-5).all()
    every = np.array(list(itertools.product(range(c), repeat=m)))
    best = np.min([loss(np.broadcast_to(codes, (n, m))) for codes in every], axis=0)
    nearest = losses[0].mean()
    assert losses[-1].mean() - best.mean() < 0.1 * (nearest - best.mean())
