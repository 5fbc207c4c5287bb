"""Trained selectors: K by hand, on disk and back, and what does not fit is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.functional.bandits.networks import Layer
from jaxrag.methods.ars.bandit.checkpoint import load_selector, write_selector
from jaxrag.methods.ars.bandit.selector import Selector, prepared, principal_axes
from jaxrag.types import InputError

# Arm k has one unit that sees one feature: f_1 = relu(x_1), f_2 = 2 relu(x_2), f_3 = relu(-x_1).
PARAMS = (
    Layer(jnp.array([[[1.0, 0.0]], [[0.0, 1.0]], [[-1.0, 0.0]]]), None),
    Layer(jnp.array([[1.0], [2.0], [1.0]]), None),
)
CONTEXTS = np.array([[3.0, 1.0], [1.0, 1.0], [-2.0, 0.5], [-2.0, -1.0]], np.float32)


@pytest.fixture
def selector() -> Selector:
    return Selector(3, 2, (1,), PARAMS, None, {"name": "encoder A"})


def test_k_by_hand(selector: Selector) -> None:
    # f is (3, 2, 0), (1, 2, 0), (0, 1, 2) and (0, 0, 2) before lengths are made 1.
    assert selector.choose(CONTEXTS).tolist() == [1, 2, 3, 3]
    # Axes that swap the features: f is then (1, 6, 0), (1, 2, 0), (0.5, 0, 0) and (0, 0, 1).
    swapped = selector._replace(axes=jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    assert swapped.choose(CONTEXTS).tolist() == [2, 2, 1, 3]


def test_a_question_alone_gets_the_k_it_gets_among_others(selector: Selector) -> None:
    together = selector.choose(CONTEXTS)
    alone = [int(selector.choose(row[None])[0]) for row in CONTEXTS]
    assert together.tolist() == alone


def test_prepared_contexts_have_length_one_and_zeros_stay() -> None:
    found = prepared(jnp.array([[3.0, 4.0], [0.0, 0.0]]), None)
    np.testing.assert_allclose(found, [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)
    found = prepared(jnp.array([[3.0, 4.0]]), jnp.array([[0.0], [-2.0]]))
    assert found.tolist() == [[-1.0]]


def test_principal_axes_hold_most_of_the_contexts() -> None:
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
        with pytest.raises(InputError, match=f"{count} dimensions are wanted"):
            principal_axes(contexts, count)


@pytest.mark.parametrize("axes", [None, jnp.array([[0.0, 1.0], [1.0, 0.0]])])
def test_written_and_read_it_chooses_the_same(
    selector: Selector, axes: Any, tmp_path: Path
) -> None:
    selector = selector._replace(axes=axes)
    write_selector(tmp_path / "s", selector, trained={"seed": 3})
    found = load_selector(tmp_path / "s", encoder={"name": "encoder A"}, arms=3)
    assert found._replace(params=None, axes=None) == selector._replace(params=None, axes=None)
    np.testing.assert_array_equal(found.choose(CONTEXTS), selector.choose(CONTEXTS))
    assert json.loads((tmp_path / "s" / "config.json").read_text())["trained"] == {"seed": 3}
    write_selector(tmp_path / "s", selector)  # in place of what is there
    assert sorted(file.name for file in tmp_path.iterdir()) == ["s"]


def edited(**changes: Any) -> Callable[[Path], None]:
    def break_it(path: Path) -> None:
        file = path / "config.json"
        config = json.loads(file.read_text()) | changes
        file.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))

    return break_it


def cut(name: str) -> Callable[[Path], None]:
    def break_it(path: Path) -> None:
        (path / name).write_bytes((path / name).read_bytes()[:-5])

    return break_it


BAD = {
    "none": (lambda p: (p / "config.json").unlink(), r"config\.json is missing"),
    "another model": (edited(model_type="bert"), "not a selector: .*'bert'"),
    "config cut": (cut("config.json"), r"config\.json, line"),
    "config without sizes": (edited(features=None), "lacks arms, features"),
    "weights cut": (cut("model.safetensors"), r"model\.safetensors is cut short"),
    "weights gone": (lambda p: (p / "model.safetensors").unlink(), r"neither model\.safetensors"),
    "other dimension": (edited(features=5), r"layers\.0 has \(3, 1, 2\), wanted \(3, 1, 5\)"),
    "other width": (edited(hidden=[4]), r"misshapen: layers\.0"),
    "axes missing": (edited(dimensions=2), r"missing: axes \(2, 2\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_whole_is_refused(name: str, selector: Selector, tmp_path: Path) -> None:
    break_it, message = BAD[name]
    break_it(write_selector(tmp_path / "s", selector))
    with pytest.raises(InputError, match=message):
        load_selector(tmp_path / "s")


def test_what_belongs_to_another_run_is_refused(selector: Selector, tmp_path: Path) -> None:
    path = write_selector(tmp_path / "s", selector)
    with pytest.raises(InputError, match=r"for encoder .*encoder A.*here it is 'B'"):
        load_selector(path, encoder="B")
    with pytest.raises(InputError, match="for arms 3, but here it is 10"):
        load_selector(path, arms=10)
    with pytest.raises(InputError, match=r"shape \(4, 3\); the selector takes \[q, 2\]"):
        load_selector(path).choose(np.ones((4, 3), np.float32))
    nan = jnp.array([[[jnp.nan, 0.0]], [[0.0, 1.0]], [[-1.0, 0.0]]])
    write_selector(path, selector._replace(params=(Layer(nan, None), PARAMS[1])))
    with pytest.raises(InputError, match=r"layers\.0 are not all finite"):
        load_selector(path)
