"""The penalty of repetition: by hand, and as transformers applies it."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.sampling import Repetition, TokenSampling, sample_tokens


def test_penalty_worked_by_hand() -> None:
    # tokens 0 and 2 have occurred: 3 / 2 and -1 * 2; the others stay
    seen = jnp.array([[True, False, True, False]])
    repetition = Repetition(jnp.float32(2), seen)
    logits = jnp.array([[3.0, 2.0, -1.0, -4.0]])
    np.testing.assert_array_equal(repetition.of(logits), [[1.5, 2.0, -2.0, -4.0]])
    added = repetition.after(jnp.array([3])).seen
    assert added.tolist() == [[True, False, True, True]]
    zeros = np.zeros(1, np.uint32)
    sampling = TokenSampling(jnp.float32(0), jnp.asarray(zeros), jnp.asarray(zeros))
    first = jnp.zeros(1, jnp.int32)
    assert sample_tokens(logits, first, sampling).tolist() == [0]
    assert sample_tokens(logits, first, sampling._replace(repetition=repetition)).tolist() == [1]


@pytest.mark.parity
@pytest.mark.parametrize("penalty", [1.1, 1.5, 0.7])
def test_penalty_equals_that_of_transformers(penalty: float) -> None:
    torch = pytest.importorskip("torch")
    from transformers import RepetitionPenaltyLogitsProcessor

    rng = np.random.default_rng(0)
    logits = rng.normal(size=(5, 40)).astype(np.float32)
    texts = rng.integers(40, size=(5, 12))
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(
        torch.tensor(texts), torch.tensor(logits.copy())
    )
    seen = np.zeros((5, 40), bool)
    seen[np.arange(5)[:, None], texts] = True
    ours = Repetition(jnp.float32(penalty), jnp.asarray(seen)).of(jnp.asarray(logits))
    np.testing.assert_allclose(np.asarray(ours), theirs.numpy(), rtol=1e-6, atol=0)
