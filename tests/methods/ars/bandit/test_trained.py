"""Trained bandits: K by hand, on disk and back, and what does not fit is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.functional.bandits.networks import Layer, mlp
from jaxrag.methods.ars.bandit.trained import (
    TrainedBandit,
    load_bandit,
    normalized,
    principal_axes,
    write_bandit,
)
from jaxrag.types import InputError

# Arm k has one unit that sees one feature: f_1 = relu(x_1), f_2 = 2 relu(x_2), f_3 = relu(-x_1).
PARAMS = (
    Layer(jnp.array([[[1.0, 0.0]], [[0.0, 1.0]], [[-1.0, 0.0]]]), None),
    Layer(jnp.array([[1.0], [2.0], [1.0]]), None),
)
CONTEXTS = np.array([[3.0, 1.0], [1.0, 1.0], [-2.0, 0.5], [-2.0, -1.0]], np.float32)


@pytest.fixture
def bandit() -> TrainedBandit:
    return TrainedBandit(3, 2, (1,), PARAMS, None, {"name": "encoder A"}, {"order": "ranked"})


def test_chosen_k_by_hand(bandit: TrainedBandit) -> None:
    # f is (3, 2, 0), (1, 2, 0), (0, 1, 2) and (0, 0, 2) before lengths are made 1.
    assert bandit.choose(CONTEXTS).tolist() == [1, 2, 3, 3]
    # Axes that swap the features: f is then (1, 6, 0), (1, 2, 0), (0.5, 0, 0) and (0, 0, 1).
    swapped = bandit._replace(axes=jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    assert swapped.choose(CONTEXTS).tolist() == [2, 2, 1, 3]


def test_the_choice_of_a_second_question_compiles_nothing(bandit: TrainedBandit) -> None:
    compiled = []
    again = bandit._replace(params=jax.tree.map(lambda leaf: leaf + 0, PARAMS))
    bandit.count(CONTEXTS[0], 3)
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event)
    )
    try:
        assert (bandit.count(CONTEXTS[1], 3), again.count(CONTEXTS[2], 3)) == (2, 3)
    finally:
        jax.monitoring.clear_event_listeners()
    assert not [event for event in compiled if "backend_compile" in event]


def test_normalized_contexts_have_length_one_or_zero() -> None:
    found = normalized(jnp.array([[3.0, 4.0], [0.0, 0.0]]), None)
    np.testing.assert_allclose(found, [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)
    found = normalized(jnp.array([[3.0, 4.0]]), jnp.array([[0.0], [-2.0]]))
    assert found.tolist() == [[-1.0]]


def test_principal_axes_keep_most_of_the_contexts() -> None:
    rng = np.random.default_rng(0)
    contexts = (
        rng.normal(size=(30, 6))
        * [5, 3, 1, 0.1, 0.1, 0.1]
        @ np.linalg.qr(rng.normal(size=(6, 6)))[0]
    )
    axes = principal_axes(contexts, 3)
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-6)
    kept = ((contexts @ axes) ** 2).sum()
    best = (np.linalg.svd(contexts, compute_uv=False)[:3] ** 2).sum()
    assert kept == pytest.approx(best, rel=1e-5)
    for count in (0, 7):
        with pytest.raises(InputError, match=f"{count} dimensions are requested"):
            principal_axes(contexts, count)


def test_a_saved_shared_network_chooses_the_same_arms(tmp_path: Path) -> None:
    network = mlp(2, 3, hidden=(4,), shared=True, bias=True)
    params = network.init(jax.random.key(0))
    bandit = TrainedBandit(3, 2, (4,), params, None, {"name": "encoder A"}, {}, shared=True)
    write_bandit(tmp_path / "s", bandit)
    found = load_bandit(tmp_path / "s")
    assert found.shared and found.identity == bandit.identity
    rows = normalized(jnp.asarray(CONTEXTS), None)
    wanted = [1 + int(jnp.argmax(network.rewards(params, row))) for row in rows]
    assert found.choose(CONTEXTS).tolist() == wanted


@pytest.mark.parametrize("axes", [None, jnp.array([[0.0, 1.0], [1.0, 0.0]])])
def test_a_saved_bandit_chooses_the_same_arms(
    bandit: TrainedBandit, axes: Any, tmp_path: Path
) -> None:
    bandit = bandit._replace(axes=axes)
    write_bandit(tmp_path / "s", bandit, trained={"seed": 3})
    found = load_bandit(tmp_path / "s", encoder={"name": "encoder A"})
    assert found._replace(params=None, axes=None) == bandit._replace(params=None, axes=None)
    np.testing.assert_array_equal(found.choose(CONTEXTS), bandit.choose(CONTEXTS))
    assert json.loads((tmp_path / "s" / "config.json").read_text())["trained"] == {"seed": 3}
    write_bandit(tmp_path / "s", bandit)  # in place of what is there
    assert sorted(file.name for file in tmp_path.iterdir()) == ["s"]


def edited(**changes: Any) -> Callable[[Path], None]:
    def break_it(path: Path) -> None:
        file = path / "config.json"
        config = json.loads(file.read_text()) | changes
        file.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))

    return break_it


BAD = {
    "another model": (edited(model_type="bert"), "not a bandit: .*'bert'"),
    "config without sizes": (edited(features=None), "lacks arms, features"),
    "other dimension": (edited(features=5), r"layers\.0 has \(3, 1, 2\), expected \(3, 1, 5\)"),
    "other width": (edited(hidden=[4]), r"misshapen: layers\.0"),
    "axes missing": (edited(dimensions=2), r"missing: axes \(2, 2\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_incomplete_checkpoints_are_refused(
    name: str, bandit: TrainedBandit, tmp_path: Path
) -> None:
    break_it, message = BAD[name]
    break_it(write_bandit(tmp_path / "s", bandit))
    with pytest.raises(InputError, match=message):
        load_bandit(tmp_path / "s")


def test_checkpoints_of_another_run_are_refused(bandit: TrainedBandit, tmp_path: Path) -> None:
    path = write_bandit(tmp_path / "s", bandit)
    with pytest.raises(InputError, match=r"for encoder .*encoder A.*here it is 'B'"):
        load_bandit(path, encoder="B")
    with pytest.raises(InputError, match="trained for 3 rewrites, and the question has 10"):
        load_bandit(path).count(CONTEXTS[0], 10)
    with pytest.raises(InputError, match=r"shape \(4, 3\); the bandit takes \[q, 2\]"):
        load_bandit(path).choose(np.ones((4, 3), np.float32))
    nan = jnp.array([[[jnp.nan, 0.0]], [[0.0, 1.0]], [[-1.0, 0.0]]])
    write_bandit(path, bandit._replace(params=(Layer(nan, None), PARAMS[1])))
    with pytest.raises(InputError, match=r"layers\.0 are not all finite"):
        load_bandit(path)
