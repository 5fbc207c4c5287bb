"""Fine-tuning a student: its loss, that it learns, and that it goes on with the same bytes."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrag.training.checkpoints import Checkpoints
from jaxrag.training.step import make_mesh
from jaxrag.training.student.checkpoint import new_t5
from jaxrag.training.student.engine import engine
from jaxrag.training.student.network import target_logprobs
from jaxrag.training.student.student import NewT5, Student, TokenPairs
from jaxrag.training.student.training import (
    StudentTraining,
    TextPair,
    batches,
    best_step,
    make_step,
    token_loss,
    tokenised,
    train,
)
from jaxrag.types import InputError
from tests.engines.tiny_model import write_tiny_model
from tests.training.contents import digest_of

WORDS = ("abc", "bad", "cab", "dcba", "ace", "bed", "cede", "dab")
PAIRS = [TextPair(f"q{i}", f"find {word}", f"{word[::-1]};") for i, word in enumerate(WORDS)]


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Student:
    """A T5 that knows bytes and drops activations."""
    path = tmp_path_factory.mktemp("tokens")
    write_tiny_model(path)
    sizes = NewT5(str(path), width=24, inner=32, heads=2, head_width=12, layers=1, dropout=0.2)
    return new_t5(sizes, max_source=16, max_target=12)


def settings(**more: Any) -> StudentTraining:
    told: dict[str, Any] = {"batch": 4, "microbatch": 2, "learning_rate": 5e-3, "save_every": 3}
    return StudentTraining(**(told | {"steps": 8, "best": "", "evaluate_every": 0} | more))


ONE = jax.devices()[:1]


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


class Kept(list[tuple[int, str]]):
    """The steps of which parameters were kept, with the parameters' hashes."""

    def __call__(self, params: Any, step: int) -> None:
        self.append((step, digest_of(params)))


def test_the_loss_by_hand() -> None:
    # 2 tokens of the first target and 1 of the second: 1 + 2 + 3; padding's 9s do not count
    logprobs = -np.array([[1.0, 2.0, 9.0], [3.0, 9.0, 9.0]], np.float32)
    nothing = np.zeros((2, 3), np.int32)
    pairs = TokenPairs(nothing, np.array([1, 1]), nothing, np.array([2, 1]))
    assert float(token_loss(logprobs, pairs)) == 6.0


def test_batches_are_padded_to_the_longest_of_all(student: Student) -> None:
    pairs = tokenised(PAIRS, student)
    assert pairs.source.shape == (8, 16) and pairs.target.shape == (8, 8)
    data = batches(pairs, settings())
    targets = [row for _ in range(2) for row in next(data).target.tolist()]
    assert sorted(targets) == sorted(pairs.target.tolist())
    with pytest.raises(InputError, match="8 pairs to train on, fewer than a batch of 16"):
        batches(pairs, settings(batch=16))


@pytest.mark.slow
def test_microbatches_add_up_to_the_whole_batch(student: Student) -> None:
    """Gradients of 4 x 1 and 2 x 2 pairs: the loss of the whole batch, and AdamW's step by hand."""
    batch = jax.tree.map(lambda a: a[:4], tokenised(PAIRS, student))

    @jax.jit
    def whole(params: Any) -> Any:
        found = target_logprobs(student.module, params, batch)[0]
        return token_loss(found, batch) / batch.target_length.sum()

    value, gradients = jax.value_and_grad(whole)(student.params)
    norm = np.linalg.norm(flat(gradients))
    assert norm > 0.01
    g = flat(gradients) * 0.01 / norm  # clipped; Adam's first step is rate * g / (|g| + 1e-8)
    known = np.abs(g) > 1e-3 * np.abs(g).max()
    for microbatch in (1, 2):
        how = settings(microbatch=microbatch, dropout=False, clip=0.01, decay="constant")
        step = make_step(student.module, how, steps=8, mesh=make_mesh(ONE))
        state, figures = step.update(step.begin(student.params), batch, 0)
        np.testing.assert_allclose(figures["loss"], value, rtol=1e-5)
        np.testing.assert_allclose(figures["norm"], norm, rtol=1e-4)
        assert figures["tokens"] == batch.target_length.sum()
        moved = flat(state.params) - flat(student.params)
        wanted = -5e-3 * g / (np.abs(g) + 1e-8)
        np.testing.assert_allclose(moved[known], wanted[known], rtol=2e-2)
    assert known.mean() > 0.05


@pytest.mark.slow
def test_training_memorises_pairs_and_generates_them(student: Student, tmp_path: Path) -> None:
    how = settings(
        steps=200, batch=8, microbatch=8, dropout=False, save_every=200, warmup=5, decay="constant"
    )
    last: list[Any] = []
    train(PAIRS, student, how, tmp_path, keep=lambda p, step: last.append((p, step)),
          devices=ONE)  # fmt: skip
    [(params, step)] = last
    assert step == 200
    first, end = lines(tmp_path)[0]["loss"], lines(tmp_path)[-1]["loss"]
    assert first > 2 and end < 0.05
    made = engine(student, params).generate([one.input for one in PAIRS], max_new_tokens=12)
    assert [(one.text, one.finish_reason) for one in made] == [(p.target, "end") for p in PAIRS]


@pytest.mark.slow
def test_early_stopping_keeps_the_best(student: Student, tmp_path: Path) -> None:
    figures = {0: 5.0, 2: 3.0, 4: 2.0, 6: 2.5, 8: 2.0, 10: 0.0}  # 8 is no better than 4

    def evaluate(params: Any, step: int) -> Any:
        return {"loss": np.array([figures[step]]), "accuracy": np.array([figures[step], np.nan])}

    how = settings(steps=20, evaluate_every=2, best="loss", patience=2)
    for _ in range(2):  # the second time nothing is left to do
        kept = Kept()
        train(PAIRS, student, how, tmp_path / "low", keep=kept, evaluate=evaluate, devices=ONE)
        assert [line["step"] for line in lines(tmp_path / "low")] == [*range(9)]
        if _ == 0:
            assert [step for step, _ in kept] == [0, 2, 4]
    assert not kept
    # an accuracy is best where it is highest: at the start, and two more do not beat it
    how, kept = dataclasses.replace(how, best="accuracy"), Kept()
    train(PAIRS, student, how, tmp_path / "high", keep=kept, evaluate=evaluate, devices=ONE)
    assert [step for step, _ in kept] == [0] and lines(tmp_path / "high")[-1]["step"] == 4
    how = dataclasses.replace(how, best="exact")
    with pytest.raises(InputError, match=r"'exact', .* defined are loss, accuracy"):
        train(PAIRS, student, how, tmp_path / "no", keep=kept, evaluate=evaluate, devices=ONE)
    assert best_step({0: {"loss": None}, 2: {"loss": 4.0}, 4: {"loss": None}}, "loss") == 2


def test_no_parameters_are_hashed_on_the_host(
    student: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at a checkpoint nor for the engine that each step of PPO samples from."""
    sizes: list[int] = []
    sha256 = hashlib.sha256

    class Counted:
        def __init__(self, data: bytes = b"") -> None:
            self.state = sha256()
            self.update(data)

        def update(self, data: bytes) -> None:
            sizes.append(len(data))
            self.state.update(data)

        def digest(self) -> bytes:
            return self.state.digest()

        def hexdigest(self) -> str:
            return self.state.hexdigest()

    monkeypatch.setattr(hashlib, "sha256", Counted)
    first = engine(student, student.params).identity
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, student.params, None)
    arrays = {array.nbytes for array in jax.tree.leaves(student.params) if array.size > 100}
    assert sizes and arrays and not arrays & {*sizes}
    changed = jax.tree.map(lambda array: array.at[(0,) * array.ndim].add(1e-3), student.params)
    assert engine(student, changed).identity != first
