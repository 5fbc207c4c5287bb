"""Training bandits: a learnable table is learned, penalties count, seeds determine all bits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.functional.bandits.interaction import Bandit, Values
from jaxrag.methods.ars.bandit.reward_table import RewardTable, read_table
from jaxrag.methods.ars.bandit.settings import (
    BanditTraining,
    EpsilonGreedy,
    LinUcb,
    NeuralUcb,
    ReleasedNeuralUcb,
    RewardScheme,
    Thompson,
)
from jaxrag.methods.ars.bandit.training import BanditResult, Replay, contexts_of, program, train
from jaxrag.types import InputError
from tests.methods.ars.bandit import small_table

SMALL = NeuralUcb(width=16, beta=1.0, learning_rate=0.1)
SHORT = BanditTraining(epochs=30, batch=7)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> RewardTable:
    return read_table(small_table.write(tmp_path_factory.mktemp("tables") / "boolq"))


def trained(
    table: RewardTable, *, training: BanditTraining = SHORT, seed: int = 0, **given
) -> BanditResult:
    policy, scheme = given.get("policy", SMALL), given.get("scheme", RewardScheme())
    contexts = contexts_of(table, training.dimensions)
    return train(table, contexts, scheme, policy, training, seed=seed)


def counting(arms: int) -> Bandit:
    """Plays arm 0 and counts in its state how often it saw each first feature."""

    def update(state, x, arm, reward):
        return state.at[x[0].astype(int)].add(1)

    return Bandit(
        init=lambda key: jnp.zeros(8, int),
        values=lambda state, x: Values(jnp.zeros(arms), jnp.zeros(arms), jnp.zeros(arms)),
        select=lambda state, x, key: jnp.asarray(1),
        update=update,
        fit=lambda state, key: state,
        greedy=lambda state, x: jnp.asarray(0),
    )


@pytest.mark.slow
def test_the_whole_matrix_and_the_released_bandit_learn_the_table(table: RewardTable) -> None:
    """K = 1 earns 2.8 of the questions of the first kind, K = 3 earns 2.4 of the second."""
    whole = dataclasses.replace(SMALL, confidence="full")
    found = trained(table, policy=whole)
    assert found.test[-1] > 2.5 and found.bandit.hidden == (16,)
    released = ReleasedNeuralUcb(width=16, steps=100, learning_rate=0.05, capacity=256)
    found = trained(table, policy=released, training=BanditTraining(epochs=5, batch=1))
    assert found.test[-1] > 2.5 and found.bandit.shared
    kinds = np.arange(len(table.ids))[~table.train] % 2
    assert np.array_equal(found.bandit.choose(table.contexts[~table.train]), 1 + 2 * kinds)
    with pytest.raises(InputError, match="learns after single questions"):
        trained(table, policy=released)


def test_the_dual_form_learns_what_the_whole_matrix_does(table: RewardTable) -> None:
    short = BanditTraining(epochs=2, batch=4)
    small = dataclasses.replace(SMALL, width=4, pulls=60)  # 28 questions twice
    whole, dual = (
        trained(table, policy=dataclasses.replace(small, confidence=form), training=short)
        for form in ("full", "dual")
    )
    np.testing.assert_allclose(whole.test, dual.test, rtol=1e-5)


@pytest.mark.parametrize("batch", [1, 3, 7, 8, 20])
def test_every_epoch_plays_every_question_once(batch: int) -> None:
    contexts = jnp.arange(7.0)[:, None]
    part = Replay(contexts, jnp.stack([jnp.arange(7.0), 10 * jnp.arange(7.0)], 1))
    test = Replay(contexts[:2], jnp.array([[1.0, 0.0], [4.0, 0.0]]))
    learn = program(counting(2), epochs=3, batch=batch)
    found = learn(jax.random.key(0), part, test)
    assert found.bandit.tolist() == [3] * 7 + [0]
    # Played is arm 1, a mean of 10 * (0 + .. + 6) / 7 = 30; watched is arm 0, 21 / 7 and 5 / 2.
    np.testing.assert_allclose(found.played, [30.0] * 3, rtol=1e-6)
    np.testing.assert_allclose(found.train, [3.0] * 3, rtol=1e-6)
    assert found.test.tolist() == [2.5] * 3
    assert found.chosen.tolist() == [1, 1]


@pytest.mark.parametrize(
    "policy",
    [SMALL, Thompson(SMALL), EpsilonGreedy(0.1, SMALL), LinUcb()],
    ids=lambda policy: policy.name,
)
def test_training_learns_a_learnable_table(table: RewardTable, policy: NeuralUcb) -> None:
    # Half of the questions pay 2.8 under K = 1 alone, half 2.4 under K = 3 alone: a fixed K has at
    # most 1.4, the oracle 2.6.
    found = trained(table, policy=policy)
    kinds = np.arange(len(table.ids))[~table.train] % 2
    assert found.chosen.tolist() == [3 if kind else 1 for kind in kinds]
    assert found.test[-1] == pytest.approx(2.6)
    assert found.train[-1] == pytest.approx(2.6)
    assert found.train[0] <= found.train[-1]
    assert len(found.played) == SHORT.epochs


def test_the_trained_bandit_chooses_as_the_last_epoch_did(table: RewardTable) -> None:
    for dimensions in (0, 4):  # all four axes turn the contexts, and need no other program
        found = trained(table, training=dataclasses.replace(SHORT, dimensions=dimensions))
        assert found.bandit is not None
        chosen = found.bandit.choose(table.contexts[~table.train])
        np.testing.assert_array_equal(chosen, found.chosen)
    assert trained(table, policy=LinUcb()).bandit is None


def test_a_seed_fixes_every_bit(table: RewardTable) -> None:
    first, again, other = (trained(table, seed=seed) for seed in (3, 3, 4))
    same = jax.tree.map(np.array_equal, first, again)
    assert all(jax.tree.leaves(same[:4])) and all(jax.tree.leaves(same.bandit.params))
    assert not np.array_equal(first.played, other.played)


def test_axes_come_from_the_training_questions_alone(table: RewardTable) -> None:
    changed = table.contexts.copy()
    changed[~table.train] *= -7
    found = contexts_of(table, 2)
    other = contexts_of(table._replace(contexts=changed), 2)
    np.testing.assert_array_equal(found.axes, other.axes)
    np.testing.assert_allclose(np.linalg.norm(found.rows, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(other.rows[~table.train], -found.rows[~table.train], atol=1e-6)


def test_weights_that_diverge_are_named(table: RewardTable) -> None:
    wild = table._replace(base=1e30 * table.base)  # its square is beyond float32
    with pytest.raises(InputError, match=r"NeuralUCB diverged on boolq, weighted, seed 0.*rate"):
        trained(wild)


def test_weights_below_zero_and_too_many_dimensions_are_refused(table: RewardTable) -> None:
    with pytest.raises(InputError, match=r"1 - 0.5 k fall to -0.5 at K = 3"):
        trained(table, scheme=RewardScheme(first=1.0, slope=0.5))
    with pytest.raises(InputError, match=r"5 dimensions are requested .* at most 4"):
        contexts_of(table, 5)
