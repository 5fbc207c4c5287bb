import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.retrieval.sidr.token_search import best_blocks, selected
from jaxrag.retrieval.sidr.token_tiles import _sum
from tests.functional.token_blocks import check_selected, random_blocks


@pytest.mark.parametrize("rows", [1, 7, 8, 200, 1600])
@pytest.mark.parametrize("wanted", [1, 5, 150])
def test_the_best_blocks_are_selected(rows, wanted) -> None:
    blocks = random_blocks(rows)
    check_selected(selected(*best_blocks([blocks], wanted), wanted), blocks, wanted)


@pytest.mark.parametrize("wanted", [1, 5, 300])
def test_blocks_are_selected_over_all_parts(wanted) -> None:
    parts = [random_blocks(rows) for rows in (24, 200, 9)]
    found = selected(*best_blocks(parts, wanted), wanted)
    check_selected(found, jnp.concatenate(parts), wanted)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 90), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_score_is_the_running_sum_whatever_the_number_of_passages(w, m, seed) -> None:
    # np.cumsum adds one by one; float32 weights of very different sizes make the order visible
    weights = 10 ** np.random.default_rng(seed).uniform(-12, 12, (w, m)).astype(np.float32)
    expected = np.cumsum(weights, axis=0, dtype=np.float64)[-1] if w else np.zeros(m)
    assert (_sum(weights) == expected).all()
