"""The check fails where a program does not fit, does not compile, or moves more than recorded."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.tpu import __main__ as command
from benchmarks.tpu import networks
from benchmarks.tpu.chips import Place, Slice
from benchmarks.tpu.program import Figures, Ideal, Program, measure

CHIP = Slice("v5e:2x4")


class Here(Slice):
    """This machine's processor in place of a chip."""

    def place(self) -> Place:
        return Place()


@jax.jit
def product(x: jax.Array, y: jax.Array) -> jax.Array:
    return x @ y


def program(size: int = 128) -> Program:
    def trace(where: Place) -> Any:
        x = where.array((64, size), jnp.float32)
        return product.trace(x, where.array((size, 32), jnp.float32))

    return Program("product", Here("v5e:2x4"), trace, Ideal(1e6, 1e6), 64, "rows")


FIGURES = Figures(1 << 30, 1 << 30, 1 << 31, 10e9, 1e12, 0.0, 1.0)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> Any:
    """Status and lines of the command whose only program is compiled to figures or an error."""

    def run(found: Figures | Exception, *flags: str) -> tuple[int, str]:
        def fake(program: Program) -> Figures:
            if isinstance(found, Exception):
                raise found
            return found

        (tmp_path / "tpu.md").touch()
        monkeypatch.setattr(command, "RECORDED", tmp_path / "recorded.json")
        monkeypatch.setattr(command, "PAGE", tmp_path / "tpu.md")
        monkeypatch.setattr(command, "measure", fake)
        monkeypatch.setattr(command, "version", lambda name: f"version of {name}")
        monkeypatch.setattr(command.catalogue, "programs", lambda: [program()])
        monkeypatch.setattr(sys, "argv", ["tpu", *flags])
        return command.main(), capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({}, 0, "all 1 pass"),
        ({"hbm": 10.9e9}, 0, "all 1 pass"),
        ({"hbm": 11.1e9}, 1, "moves 11.10 GB, 1.11 times the recorded 10.00 GB"),
        ({"peak": 16 << 30}, 1, "does not fit: 16.00 of 15.75 GiB"),
    ],
)
def test_more_bytes_than_recorded_or_than_the_chip_has_fail(change, status, says, run, tmp_path):
    assert run(FIGURES, "--record")[0] == 0
    assert "product" in (tmp_path / "tpu.md").read_text()
    found, said = run(dataclasses.replace(FIGURES, **change))
    assert found == status and says in said


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm.", "does not fit"),
        ("INTERNAL: Mosaic failed to compile TPU kernel.", "does not compile"),
    ],
)
def test_what_does_not_fit_or_compile_fails_even_when_recording(message, says, run) -> None:
    error = jax.errors.JaxRuntimeError(message)
    assert run(error)[0] == 1
    status, said = run(error, "--record")
    assert status == 1 and f"{says}: {message}" in said


def test_a_program_without_recorded_figures_fails(run: Any) -> None:
    assert run(FIGURES)[0] == 1


def test_a_program_that_cannot_be_lowered_for_a_gpu_fails(run, monkeypatch) -> None:
    def refuse(program: Program) -> None:
        raise NotImplementedError("MLIR translation rule not found for platform cuda")

    run(FIGURES, "--record")
    monkeypatch.setattr(command, "lower_for_gpu", refuse)
    status, said = run(FIGURES)
    assert status == 1 and "does not lower for CUDA: MLIR translation" in said


def test_a_compiled_program_is_measured() -> None:
    # 64 x 128 by 128 x 32 in float32: every array is read or written once
    figures = measure(program())
    assert figures.flops == 2 * 64 * 128 * 32
    assert figures.hbm == 4 * (64 * 128 + 128 * 32 + 64 * 32)
    assert figures.arguments == 4 * (64 * 128 + 128 * 32)
    assert figures.peak >= figures.arguments + 4 * 64 * 32


def test_a_chip_s_roofline_is_the_longer_of_two_times() -> None:
    # 819 GB at 819 GB/s and 394 TFLOP at 197 TFLOP/s
    figures = dataclasses.replace(FIGURES, hbm=819e9, flops=394e12)
    assert (figures.memory_time(CHIP), figures.compute_time(CHIP)) == (1.0, 2.0)
    assert figures.roofline(CHIP) == 2.0
    eight = Slice("v5e:2x4", 2, 4)
    assert Ideal(819e9 * 8, 197e12 * 4).seconds(eight) == 1.0


def test_the_catalogue_names_each_program_once_and_has_a_fast_part() -> None:
    from benchmarks.tpu.catalogue import FAST, programs

    keys = [one.key for one in programs()]
    assert len(set(keys)) == len(keys)
    assert set(FAST) < set(keys)


def test_figures_of_a_part_of_a_call_and_what_else_is_held() -> None:
    whole = program()
    part = measure(dataclasses.replace(whole, parts=4, held=1 << 20))
    alone = measure(whole)
    assert part.flops == alone.flops / 4 and part.hbm == alone.hbm / 4
    assert part.peak == alone.peak + (1 << 20)


def test_a_bert_has_the_published_number_of_parameters() -> None:
    # 109,482,240 of BERT-base without its pooler's 768 x 768 + 768
    assert networks.bert_weights(networks.bert(networks.BASE)) == 109_482_240 - 590_592
