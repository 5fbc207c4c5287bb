"""Programs timed on a GPU: their arguments, the measurement and the comparison, on a CPU."""

import dataclasses
from argparse import Namespace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import cards, inputs, programs, timing
from benchmarks.gpu.programs import Timed
from benchmarks.tpu.program import Ideal, Program
from jaxrag.types import InputError


@partial(jax.jit, donate_argnames="cache")
def _step(
    cache: jax.Array, given: dict[str, jax.Array], where: jax.Array
) -> tuple[jax.Array, jax.Array]:
    return cache + given["x"].sum(), jnp.where(where, given["ids"], -1)


CARD = cards.Card("H100")


def step(compared: bool = True) -> Timed:
    def trace(where: object) -> object:
        given = {
            "x": jax.ShapeDtypeStruct((3, 4), jnp.bfloat16),
            "ids": jax.ShapeDtypeStruct((5,), jnp.int32),
        }
        cache = jax.ShapeDtypeStruct((7,), jnp.float32)
        return _step.trace(cache, given, jax.ShapeDtypeStruct((5,), jnp.bool_))

    program = Program("step", CARD, trace, Ideal(3.35e9, 0.0), 2, "steps", parts=4)
    return Timed(program, {"['ids']": (7, 9)}, compared)


def test_arguments_follow_rules_and_are_the_same_each_time() -> None:
    ready = timing.prepare(step())
    (cache, given, where), keywords = inputs.arguments(
        ready.traced, {"['ids']": (7, 9), "[0][0]": 2.5}, jax.devices()[0]
    )
    assert keywords == {}
    assert cache.tolist() == [2.5] * 7
    assert given["x"].dtype == jnp.bfloat16
    assert 0 < float(abs(given["x"]).max()) < 0.2  # normal with deviation 0.02
    assert set(given["ids"].tolist()) <= {7, 8}
    assert bool(where.all())
    again = inputs.arguments(ready.traced, {"['ids']": (7, 9)}, jax.devices()[0])[0][1]
    np.testing.assert_array_equal(given["x"], again["x"])


def test_a_program_that_takes_over_an_argument_is_called_again_and_again() -> None:
    ready = timing.prepare(step())
    times, made = timing.measure(ready, rounds=3)
    assert len(times.seconds) == 3
    assert 0 < times.median < 10
    assert made is not None
    assert [leaf.shape for leaf in made] == [(7,), (5,)]


def test_results_are_compared_with_those_of_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "0.npz"
    timing.write_reference(step(), path)
    expected = timing.read_reference(path)
    _, made = timing.measure(timing.prepare(step()), rounds=1)
    assert made is not None
    assert timing.difference(made, expected) == (0.0, 1.0)


def test_times_are_of_a_part_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    ready, clock = timing.prepare(step()), iter(range(100))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    times, _ = timing.measure(ready, rounds=5)
    # a call takes 1 s by this clock and has 4 parts; of 5 measurements, 3 s allow 3
    assert times.seconds == [0.25] * 3


def test_a_row_has_the_share_of_the_least_time_and_the_rate() -> None:
    row = command._row(timing.prepare(step()), timing.Times([0.001, 0.002, 0.004]), CARD)
    # least: 3.35 GB at 3,350 GB/s = 1 ms of 2; 2 steps in 2 ms
    assert "| 2 [1, 4] | 1 | 0.50 | 1,000 steps |" in row


class Reference:
    """A process that has ended."""

    def __init__(self, status: int) -> None:
        self.status = status

    def wait(self) -> int:
        return self.status


def run(chosen: list[Timed], folder: Path, status: int = 0) -> tuple[int, str]:
    options = Namespace(write=folder / "table.md", threads=2, rounds=2)
    found = command._run(chosen, CARD, options, folder, Reference(status))
    return found, options.write.read_text("utf-8")


def test_the_command_prints_a_row_of_each_program_and_compares(tmp_path: Path) -> None:
    timing.write_reference(step(), tmp_path / "0.npz")
    status, said = run([step(), step(compared=False)], tmp_path)
    assert status == 0
    assert said.count("| step | 0.00 |") == 2
    assert said.count("as on a CPU: step: numbers 0.0e+00, integers 1.0000") == 1


@pytest.mark.parametrize(
    ("message", "status", "says"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory", 0, "| step | does not fit |"),
        ("INTERNAL: no kernel", 1, "| step | INTERNAL: no kernel |"),
    ],
)
def test_a_program_that_does_not_fit_or_compile_is_named(message, status, says, tmp_path) -> None:
    def trace(where: object) -> object:
        raise jax.errors.JaxRuntimeError(message)

    broken = dataclasses.replace(step(), program=dataclasses.replace(step().program, trace=trace))
    found, said = run([broken, step()], tmp_path)
    assert found == status
    assert says in said
    assert "| step | 0.00 |" in said  # the others are timed


def test_a_cpu_that_fails_is_not_silent(tmp_path: Path) -> None:
    status, said = run([step()], tmp_path, status=1)
    assert status == 1
    assert "its process failed" in said


def test_differences_by_hand() -> None:
    # ||(3, 4) - (3, 0)|| / ||(3, 0)|| = 4 / 3; of four integers, one differs
    found = [np.array([3.0, 4.0]), np.array([1, 2, 3, 4])]
    expected = [np.array([3.0, 0.0]), np.array([1, 2, 3, 5])]
    assert timing.difference(found, expected) == (pytest.approx(4 / 3), 0.75)
    assert timing.difference([np.array([np.nan])], [np.array([1.0])])[0] == np.inf
    assert timing.difference([np.array([0.5])], [np.array([0.0])])[0] == 0.5


def test_a_card_is_known_by_its_name() -> None:
    card = cards.card("NVIDIA H100 80GB HBM3")
    assert card.name == "H100"
    # 3.35 GB at 3,350 GB/s
    assert step().program.ideal.seconds(card) == pytest.approx(1e-3)
    with pytest.raises(InputError, match="Tesla T4"):
        cards.card("Tesla T4")


def test_every_rule_fits_an_argument() -> None:
    for timed in (*programs.texts(CARD), *programs.searches(CARD)):
        traced = timed.program.trace(CARD.place())
        paths = [
            jax.tree_util.keystr(p)
            for p, _ in jax.tree_util.tree_leaves_with_path(traced.args_info)
        ]
        joined = " ".join(paths)
        used = [rule for rule in timed.rules if rule in joined]
        if timed.rules is programs._TILES:  # one mapping for three programs
            continue
        assert used == list(timed.rules), timed.program.name
