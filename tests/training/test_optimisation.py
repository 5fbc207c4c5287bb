"""Learning rates and first steps of the optimisers, worked by hand."""

from typing import Any

import numpy as np
import pytest

from jaxrag.training.optimisation import learning_rate, make_optimiser

PARAMS = {"w": np.array([2.0, -1.0], np.float32)}
GRADIENTS = {"w": np.array([0.3, -0.4], np.float32)}  # norm 0.5


def rates(count: int, peak: float, steps: int, **settings: Any) -> list[float]:
    rate = learning_rate(peak, steps, **settings)
    return [float(rate(step)) for step in range(count)]


def test_the_rate_rises_and_falls_linearly() -> None:
    # warm-up over 4 steps from a fifth of the peak, then down to 0 over the other 6
    found = rates(11, 1.0, 10, warmup=4, decay="linear")
    np.testing.assert_allclose(found[:5], [0.2, 0.4, 0.6, 0.8, 1.0], rtol=1e-6)
    np.testing.assert_allclose(found[5:], [5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0], atol=1e-6)


def test_the_rate_falls_along_a_cosine() -> None:
    # warm-up over 4 steps from a fifth of the peak, then (1 + cos(pi t / 4)) / 2
    cosine = [(1 + np.cos(np.pi * t / 4)) / 2 for t in range(5)]
    found = rates(9, 1.0, 8, warmup=4, decay="cosine")
    np.testing.assert_allclose(found, [0.2, 0.4, 0.6, 0.8, *cosine], atol=1e-6)
    found = rates(11, 2.0, 10, warmup=0, decay="cosine")
    np.testing.assert_allclose([found[i] for i in (0, 5, 10)], [2, 1, 0], atol=1e-6)


def test_the_rate_can_be_constant() -> None:
    assert rates(10, 0.5, 10, warmup=0, decay="constant") == [0.5] * 10


def first_update(**settings: Any) -> np.ndarray:
    optimiser = make_optimiser(0.1, **({"weight_decay": 0.0, "clip": 0.0} | settings))
    return np.asarray(optimiser.update(GRADIENTS, optimiser.init(PARAMS), PARAMS)[0]["w"])


@pytest.mark.parametrize("algorithm", ["adamw", "adafactor"])
@pytest.mark.parametrize("clip", [0.0, 0.01])
def test_the_first_step_is_the_sign_of_the_gradient(algorithm: Any, clip: float) -> None:
    # Adam's is g / (|g| + 1e-8); Adafactor's is g / sqrt(g^2), of root mean square 1, so that it is
    # not clipped. Clipping the gradient scales both of its entries, and so changes neither.
    found = first_update(algorithm=algorithm, clip=clip)
    np.testing.assert_allclose(found, [-0.1, 0.1], rtol=1e-5)


@pytest.mark.parametrize("algorithm", ["adamw", "adafactor"])
def test_weight_decay_is_decoupled(algorithm: Any) -> None:
    # rate * decay * w besides: 0.1 * 0.5 * [2, -1]
    found = first_update(algorithm=algorithm, weight_decay=0.5)
    np.testing.assert_allclose(found, [-0.2, 0.15], rtol=1e-5)


def test_the_second_moment_sees_the_clipped_gradient() -> None:
    # Adam with b1 0.9, b2 0.999 on g, then g / 10. Unclipped: m = (0.09 g + 0.01 g) / 0.19, v =
    # (0.000999 g^2 + 0.00001 g^2) / 0.001999, so the second step is 0.1 * 0.526316 / 0.710459.
    # Clipped to the norm of g / 10, both gradients are equal and the step is the sign again.
    def second(clip: float) -> np.ndarray:
        optimiser = make_optimiser(0.1, weight_decay=0.0, clip=clip)
        _, state = optimiser.update(GRADIENTS, optimiser.init(PARAMS), PARAMS)
        small = {"w": GRADIENTS["w"] / 10}
        return np.asarray(optimiser.update(small, state, PARAMS)[0]["w"])

    np.testing.assert_allclose(
        second(0.0), np.array([-1, 1]) * 0.1 * 0.526316 / 0.710462, rtol=1e-4
    )
    np.testing.assert_allclose(second(0.05), [-0.1, 0.1], rtol=1e-4)
