"""Self-RAG's scores: worked by hand, against float64 NumPy, and what must hold of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jaxrag.functional import self_rag
from jaxrag.functional.self_rag import Critique, Weights

FEW = settings(max_examples=30, deadline=None)
LOGS = st.floats(-30, 0, width=32)
NEVER = -np.inf


def logs(*probabilities: float) -> jax.Array:
    return jnp.log(jnp.array(probabilities, jnp.float32))


def close(ours: object, reference: object, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(
        np.asarray(ours, np.float64), np.asarray(reference), rtol=0, atol=tolerance
    )


def test_parts_worked_by_hand() -> None:
    # 0.3 / (0.3 + 0.1)
    close(self_rag.relevance_score(logs(0.3, 0.1)), 0.75)
    # (0.2 + 0.5 * 0.1) / 0.5
    close(self_rag.support_score(logs(0.2, 0.1, 0.2)), 0.5)
    # (-0.1 - 0.05 + 0 + 0.15 + 0.2) / 0.8, from probabilities 0.1, 0.1, 0.1, 0.3, 0.2
    close(self_rag.utility_score(logs(0.1, 0.1, 0.1, 0.3, 0.2)), 0.25)
    # exp of the mean of ln 0.5 and ln 0.125 is the root of 1 / 16
    close(self_rag.sequence_score(logs(0.5, 0.125)), 0.25)


def test_whole_score_worked_by_hand() -> None:
    critique = Critique(logs(0.3, 0.1), logs(0.2, 0.1, 0.2), logs(0.1, 0.1, 0.1, 0.3, 0.2))
    found = self_rag.segment_scores(critique, logs(0.5, 0.125))
    close(found, [0.75, 0.5, 0.25, 0.25, 0.25 + 0.75 + 0.5 + 0.5 * 0.25])
    weights = Weights(relevance=2.0, support=0.5, utility=-1.0, sequence=0.0)
    found = self_rag.segment_scores(critique, logs(0.5, 0.125), weights=weights)
    close(found.total, 1.5 + 0.25 - 0.25)


def test_scores_of_extreme_probabilities() -> None:
    close(self_rag.utility_score(jnp.array([0.0, *[NEVER] * 4])), -1.0)
    close(self_rag.utility_score(jnp.array([*[NEVER] * 4, -50.0])), 1.0)
    close(self_rag.support_score(jnp.array([NEVER, -3.0, NEVER])), 0.5)
    # far below what float32's exp resolves: the shares are still those
    close(self_rag.relevance_score(jnp.array([-500.0, -499.0])), 1 / (1 + np.e))
    # nothing possible counts nothing, and is no NaN
    none = Critique(jnp.full(2, NEVER), jnp.full(3, NEVER), jnp.full(5, NEVER))
    close(self_rag.segment_scores(none, jnp.zeros(0)), [0.0] * 5)
    assert jnp.isnan(self_rag.relevance_score(jnp.array([jnp.nan, -1.0])))


def test_retrieval_probability() -> None:
    close(self_rag.retrieval_probability(logs(0.6, 0.2)), 0.75)
    # the released code: ln 0.5 / (ln 0.5 + ln 0.125) = 1 / 4, yet retrieval is 4 times likelier
    close(self_rag.retrieval_probability(logs(0.5, 0.125), rule="released"), 0.25)
    close(self_rag.retrieval_probability(logs(0.125, 0.5), rule="released"), 0.75)
    # impossible retrieval makes its ratio 1, impossible abstaining 0
    close(self_rag.retrieval_probability(jnp.array([NEVER, -1.0]), rule="released"), 1.0)
    close(self_rag.retrieval_probability(jnp.array([-1.0, NEVER]), rule="released"), 0.0)
    close(self_rag.retrieval_probability(jnp.array([NEVER, NEVER]), rule="released"), 1.0)
    close(self_rag.retrieval_probability(jnp.zeros(2), rule="released"), 0.5)


@FEW
@given(hnp.arrays(np.float32, 2, elements=st.floats(-20, -0.125, width=32)))
def test_paper_and_released_rules_can_order_oppositely(found: np.ndarray) -> None:
    paper = self_rag.retrieval_probability(jnp.asarray(found))
    released = self_rag.retrieval_probability(jnp.asarray(found), rule="released")
    assert (paper > 0.5 + 1e-6) <= (released < 0.5 + 1e-6)
    assert (paper < 0.5 - 1e-6) <= (released > 0.5 - 1e-6)


def numpy_scores(critique: Critique, logprobs: np.ndarray, weights: Weights) -> list[float]:
    rel, sup, use = (np.exp(np.asarray(part, np.float64)) for part in critique)
    parts = [
        rel[0] / rel.sum(),
        (sup[0] + sup[1] / 2) / sup.sum(),
        (use * [-1, -0.5, 0, 0.5, 1]).sum() / use.sum(),
        np.exp(logprobs.astype(np.float64).mean()),
    ]
    return [*parts, float(np.dot(parts, np.asarray(weights)))]


@FEW
@given(
    *(hnp.arrays(np.float32, size, elements=LOGS) for size in (2, 3, 5)),
    hnp.arrays(np.float32, st.integers(1, 7), elements=LOGS),
    st.tuples(*[st.floats(-2, 2, width=32)] * 4),
)
def test_matches_float64(rel, sup, use, logprobs, weights) -> None:
    critique, weights = Critique(rel, sup, use), Weights(*weights)
    padded, where = np.full(8, 9.0, np.float32), np.arange(8) < len(logprobs)
    padded[: len(logprobs)] = logprobs
    reference = numpy_scores(critique, logprobs, weights)
    for function in (self_rag.segment_scores, jax.jit(self_rag.segment_scores)):
        found = function(critique, jnp.asarray(padded), where=jnp.asarray(where), weights=weights)
        close(found, reference, 3e-5)
    assert 0 <= found.relevance <= 1 and 0 <= found.support <= 1 and -1 <= found.utility <= 1


@FEW
@given(hnp.arrays(np.float32, 5, elements=LOGS), st.floats(-5, 5, width=32))
def test_scores_depend_on_normalised_probabilities_only(logprobs: np.ndarray, shift: float) -> None:
    moved = self_rag.utility_score(logprobs + np.float32(shift))
    close(moved, self_rag.utility_score(logprobs), 2e-5)
    close(jnp.sum(self_rag.shares(jnp.asarray(logprobs))), 1.0)


def test_paths() -> None:
    scores, where = jnp.array([1.5, 0.5, 7.0]), jnp.array([True, True, False])
    close(self_rag.path_score(scores, where=where), 1.0)
    close(self_rag.path_score(scores, where=where, rule="released"), 0.75)
    close(self_rag.path_score(scores), 3.0)
    for rule in ("paper", "released"):
        close(self_rag.path_score(scores, where=jnp.zeros(3, bool), rule=rule), 0.0)


def test_options() -> None:
    scores = jnp.array([1.0, 0.75, 0.5, 9.0])
    # option 0 has 1.0, option 1 has 0.75 + 0.5, nobody chose 2; the last passage chose none
    found = self_rag.option_scores(scores, jnp.array([0, 1, 1, -1]), count=3)
    close(found, [1.0, 1.25, 0.0])


@pytest.mark.parametrize("axis", [None, "n"])
def test_many_segments_at_once(axis: str | None) -> None:
    rng = np.random.default_rng(3)
    critique = Critique(*(np.log(rng.random((8, size), np.float32)) for size in (2, 3, 5)))
    logprobs = np.log(rng.random((8, 4), np.float32))
    if axis:  # 8 devices as one
        mesh = jax.make_mesh((8,), (axis,), axis_types=(jax.sharding.AxisType.Auto,))
        spread = jax.NamedSharding(mesh, jax.P(axis))
        critique, logprobs = jax.device_put((critique, logprobs), spread)
    found = jax.jit(jax.vmap(self_rag.segment_scores))(critique, logprobs)
    for i in range(8):
        one = self_rag.segment_scores(
            Critique(*(np.asarray(part)[i] for part in critique)), np.asarray(logprobs)[i]
        )
        close([part[i] for part in found], one)
