"""Fine-tuning a student: its loss, that it learns, and that its bits are the settings' alone."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrag.engines.store import canonical, digest
from jaxrag.training import pieces
from jaxrag.training.checkpoints import flatten, hashes
from jaxrag.training.query_optimizer import best_step, make_step, token_loss, train
from jaxrag.training.query_optimizer_data import Pair, batches, make_batch, tokenised
from jaxrag.training.query_optimizer_settings import Training
from jaxrag.training.students import NewT5, Pairs, Student, engine, new_t5, target_logprobs
from jaxrag.types import InputError
from tests.engines.tiny_model import write_tiny_model

WORDS = ("abc", "bad", "cab", "dcba", "ace", "bed", "cede", "dab")
PAIRS = [Pair(f"q{i}", f"find {word}", f"{word[::-1]};") for i, word in enumerate(WORDS)]


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Student:
    """A T5 that knows bytes and drops activations."""
    path = tmp_path_factory.mktemp("tokens")
    write_tiny_model(path)
    sizes = NewT5(str(path), width=24, inner=32, heads=2, head_width=12, layers=1, dropout=0.2)
    return new_t5(sizes, max_source=16, max_target=12)


def settings(**more: Any) -> Training:
    told: dict[str, Any] = {"batch": 4, "piece": 2, "learning_rate": 5e-3, "save_every": 3}
    return Training(**(told | {"steps": 8, "best": "", "watch_every": 0} | more))


def one_device() -> Any:
    return pieces.data_mesh(jax.devices()[:1])


def hash_of(params: Any) -> str:
    return digest(canonical(hashes(flatten(params))))


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


class Kept(list[tuple[int, str]]):
    """The steps of which parameters were kept, with the parameters' hashes."""

    def __call__(self, params: Any, step: int) -> None:
        self.append((step, hash_of(params)))


def test_the_loss_by_hand() -> None:
    # 2 tokens of the first target and 1 of the second: (1 + 2 + 3) / 3; padding's 9s do not count
    logprobs = -np.array([[1.0, 2.0, 9.0], [3.0, 9.0, 9.0]], np.float32)
    nothing = np.zeros((2, 3), np.int32)
    pairs = Pairs(nothing, np.array([1, 1]), nothing, np.array([2, 1]))
    assert float(token_loss(logprobs, make_batch(pairs))) == 2.0


def test_the_rate_by_hand() -> None:
    # up in thirds over 2 steps, then down in eighths: 1, 7/8, ... over 8 steps
    of = Training(learning_rate=1e-3, warmup=2).schedule(10)
    wanted = [1 / 3, 2 / 3, 1, 7 / 8, 6 / 8]
    np.testing.assert_allclose([float(of(i)) * 1e3 for i in range(5)], wanted, rtol=1e-6)
    flat_rate = Training(learning_rate=1e-3, decay="constant").schedule(10)
    assert [float(flat_rate(i)) for i in (0, 9)] == [pytest.approx(1e-3)] * 2


def test_first_steps_of_the_optimisers_by_hand() -> None:
    params = {"w": np.array([2.0, -1.0], np.float32)}
    slopes = {"w": np.array([0.3, -0.4], np.float32)}  # norm 0.5

    def moved(**more: Any) -> np.ndarray:
        made = settings(learning_rate=0.1, decay="constant", **more).optimiser_over(5)
        return np.asarray(made.update(slopes, made.init(params), params)[0]["w"])

    # Adam's first step is the sign; decay takes rate * decay * w besides
    np.testing.assert_allclose(moved(), [-0.1, 0.1], rtol=1e-5)
    np.testing.assert_allclose(moved(weight_decay=0.5), [-0.2, 0.15], rtol=1e-5)
    # Adafactor's first: g / sqrt(g^2) again, of root mean square 1, so not clipped
    np.testing.assert_allclose(moved(optimiser="adafactor"), [-0.1, 0.1], rtol=1e-5)
    np.testing.assert_allclose(
        moved(optimiser="adafactor", weight_decay=0.5), [-0.2, 0.15], rtol=1e-5
    )


def test_batches_are_the_seeds_and_go_on(student: Student) -> None:
    pairs = tokenised(PAIRS, student)
    assert pairs.source.shape == (8, 16) and pairs.target.shape == (8, 8)

    def orders(seed: int) -> list[list[Any]]:
        data = batches(pairs, settings(seed=seed))
        return [next(data).pairs.target.tolist() for _ in range(4)]

    found = orders(0)
    assert found == orders(0) != orders(1)
    for first, second in (found[:2], found[2:]):  # every pair once an epoch
        assert sorted(first + second) == sorted(pairs.target.tolist())
    assert found[:2] != found[2:]
    data, rest = batches(pairs, settings()), batches(pairs, settings())
    next(data)
    rest.set_state(json.loads(json.dumps(data.get_state())))
    assert next(rest).pairs.target.tolist() == found[1]
    with pytest.raises(InputError, match="8 pairs to train on, fewer than a batch of 16"):
        batches(pairs, settings(batch=16))


@pytest.mark.slow
def test_pieces_add_up_to_the_whole_batch(student: Student) -> None:
    """Gradients of 4 x 1 and 2 x 2 pairs: the loss of the whole batch, and AdamW's step by hand."""
    batch = make_batch(jax.tree.map(lambda a: a[:4], tokenised(PAIRS, student)))

    @jax.jit
    def whole(params: Any) -> Any:
        found = target_logprobs(student.module, params, batch.pairs)[0]
        return token_loss(found, batch)

    value, slopes = jax.value_and_grad(whole)(student.params)
    norm = np.linalg.norm(flat(slopes))
    assert norm > 0.01
    g = flat(slopes) * 0.01 / norm  # clipped; Adam's first step is rate * g / (|g| + 1e-8)
    known = np.abs(g) > 1e-3 * np.abs(g).max()
    for piece in (1, 2):
        how = settings(piece=piece, dropout=False, clip=0.01, decay="constant")
        step = make_step(student.module, how, steps=8, mesh=one_device())
        state, figures = step.update(step.begin(student.params), batch, 0)
        np.testing.assert_allclose(figures["loss"], value, rtol=1e-5)
        np.testing.assert_allclose(figures["norm"], norm, rtol=1e-4)
        assert figures["tokens"] == batch.pairs.target_length.sum()
        moved = flat(state.params) - flat(student.params)
        wanted = -5e-3 * g / (np.abs(g) + 1e-8)
        np.testing.assert_allclose(moved[known], wanted[known], rtol=2e-2)
    assert known.mean() > 0.05


@pytest.mark.slow
def test_it_learns_pairs_by_heart_and_writes_them(student: Student, tmp_path: Path) -> None:
    how = settings(
        steps=200, batch=8, piece=8, dropout=False, save_every=200, warmup=5, decay="constant"
    )
    last: list[Any] = []
    train(PAIRS, student, how, tmp_path, keep=lambda p, step: last.append((p, step)),
          mesh=one_device())  # fmt: skip
    [(params, step)] = last
    assert step == 200
    first, end = lines(tmp_path)[0]["loss"], lines(tmp_path)[-1]["loss"]
    assert first > 2 and end < 0.05
    made = engine(student, params).generate([one.input for one in PAIRS], max_new_tokens=12)
    assert [(one.text, one.finish_reason) for one in made] == [(p.target, "end") for p in PAIRS]


class Stop(Exception):
    pass


@pytest.mark.slow
def test_stopped_and_started_again_it_ends_in_the_same_bits(
    student: Student, tmp_path: Path
) -> None:
    """Stopped after step 6 of 8, and never stopped; with dropout, which goes by the step."""
    how = settings(watch_every=3, best="loss")

    def stops(params: Any, step: int) -> Any:
        if step == 6:
            raise Stop
        return {"loss": np.array([float(10 - step)])}

    def watches(params: Any, step: int) -> Any:
        return {"loss": np.array([float(10 - step)])}

    kept, whole = Kept(), Kept()
    with pytest.raises(Stop):
        train(PAIRS, student, how, tmp_path / "stopped", keep=kept, watch=stops, mesh=one_device())
    assert [step for step, _ in kept] == [0, 3]
    train(PAIRS, student, how, tmp_path / "stopped", keep=kept, watch=watches, mesh=one_device())
    train(PAIRS, student, how, tmp_path / "whole", keep=whole, watch=watches, mesh=one_device())
    assert [step for step, _ in kept] == [0, 3, 3, 6, 8]  # 3 is asked for again on the way back
    assert kept[:2] + kept[3:] == whole and kept[2] == kept[1]
    losses = [[line.get("loss") for line in lines(tmp_path / n)] for n in ("stopped", "whole")]
    assert losses[0] == losses[1] and len({*losses[1]}) == 9  # 8 steps, and None before them
    before = hash_of(student.params)
    assert whole[0] == (0, before) and len({told for _, told in whole}) == 4


@pytest.mark.slow
def test_early_stopping_keeps_the_best(student: Student, tmp_path: Path) -> None:
    figures = {0: 5.0, 2: 3.0, 4: 2.0, 6: 2.5, 8: 2.0, 10: 0.0}  # 8 is no better than 4

    def watch(params: Any, step: int) -> Any:
        return {"loss": np.array([figures[step]]), "accuracy": np.array([figures[step], np.nan])}

    how = settings(steps=20, watch_every=2, best="loss", patience=2)
    for _ in range(2):  # the second time nothing is left to do
        kept = Kept()
        train(PAIRS, student, how, tmp_path / "low", keep=kept, watch=watch, mesh=one_device())
        assert [line["step"] for line in lines(tmp_path / "low")] == [*range(9)]
        if _ == 0:
            assert [step for step, _ in kept] == [0, 2, 4]
    assert not kept
    # an accuracy is best where it is highest: at the start, and two more do not beat it
    how, kept = dataclasses.replace(how, best="accuracy"), Kept()
    train(PAIRS, student, how, tmp_path / "high", keep=kept, watch=watch, mesh=one_device())
    assert [step for step, _ in kept] == [0] and lines(tmp_path / "high")[-1]["step"] == 4
    how = dataclasses.replace(how, best="exact")
    with pytest.raises(InputError, match=r"'exact', .* known are loss, accuracy"):
        train(PAIRS, student, how, tmp_path / "no", keep=kept, watch=watch, mesh=one_device())
    assert best_step({0: {"loss": None}, 2: {"loss": 4.0}, 4: {"loss": None}}, "loss") == 2


@pytest.mark.slow
def test_eight_devices_train_to_the_bits_of_one(student: Student) -> None:
    batch, found = make_batch(tokenised(PAIRS, student)), []
    for devices in (1, 8):
        mesh = pieces.data_mesh(jax.devices()[:devices])
        step = make_step(student.module, settings(batch=8, piece=1), steps=3, mesh=mesh)
        state, losses = step.begin(student.params), []
        for number in range(3):
            state, figures = step.update(state, batch, number)
            losses.append(float(figures["loss"]))
        found.append((losses, hash_of(pieces.apart(state.params, mesh)[0])))
    assert found[0] == found[1] and len({*found[0][0]}) == 3


def test_a_loss_that_is_no_number_stops_with_its_step(student: Student, tmp_path: Path) -> None:
    params = jax.tree.map(lambda x: x * np.float32(1e30), student.params)
    broken = dataclasses.replace(student, params=params)
    with pytest.raises(InputError, match=r"Step 1: (loss|norm) is (nan|inf)"):
        train(PAIRS, broken, settings(dropout=False), tmp_path, keep=Kept(), mesh=one_device())


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"optimiser": "sgd"}, "optimiser is 'sgd'; allowed are 'adamw', 'adafactor'"),
        ({"decay": "cosine"}, "decay is 'cosine'"),
        ({"best": "bleu"}, "best is 'bleu'"),
        ({"patience": 2}, "patience is 2, which needs a figure"),
        ({"patience": 2, "best": "loss"}, "watch_every is 0"),
        ({"epochs": 0.0}, "epochs 0.0"),
        ({"clip": -1.0}, "clip is -1.0"),
    ],
)
def test_settings_that_will_not_do(more: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        settings(**more)


def test_epochs_make_steps() -> None:
    # 3 epochs of 10 pairs in batches of 4: 7.5 steps, to the even
    assert Training().steps_over(10) == 8 and Training(steps=5).steps_over(10) == 5
