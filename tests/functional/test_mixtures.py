import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.functional.mixtures import log_mixture

LOGS = st.floats(-30, 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), LOGS, LOGS), min_size=3, max_size=3))
def test_a_mixture_by_its_definition_in_float64(rows: list[tuple[float, float, float]]) -> None:
    table = np.array(rows)
    weights = np.exp(table[:, 0]) / np.exp(table[:, 0]).sum()
    expected = np.log(weights @ np.exp(table[:, 1:]))
    found = log_mixture(jnp.asarray(table[:, 0]), jnp.asarray(table[:, 1:]))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_equal_passages_mix_to_themselves_at_any_temperature() -> None:
    row = np.log([0.2, 0.7])
    for temperature in (0.1, 1.0, 50.0):
        found = log_mixture(
            jnp.asarray([3.0, 1.0]), jnp.asarray([row, row]), temperature=temperature
        )
        np.testing.assert_allclose(found, row, rtol=1e-5)


def test_the_temperature_divides_the_scores() -> None:
    # scores 0 and 2 ln 3 at temperature 2: weights 1 / 4 and 3 / 4; 0.25 * 0.4 + 0.75 * 0.8 = 0.7
    scores = jnp.array([0.0, 2 * np.log(3.0)])
    logprobs = jnp.log(jnp.array([[0.4], [0.8]]))
    found = log_mixture(scores, logprobs, temperature=2.0)
    np.testing.assert_allclose(np.exp(found), [0.7], rtol=1e-5)
