"""Damaged files of every kind: a script ends well and as before, or with one clear error."""

import random
from pathlib import Path

import pytest

from jaxrag.training.loop import METRICS, read_steps
from jaxrag.types import InputError
from tests.faults.damage import files
from tests.faults.world import LIMITS, cases, killed, sample, without_room
from tests.faults.worlds import WORLDS
from tests.training.processes import on_one_device

# what once ended in a traceback, of files that no reader of tests/test_malformed.py reads
FOUND = {
    "run": {
        ("dataset_info.json", "a bit at a third"),
        ("config.py", "a line of garbage"),
        ("tokenizer_config.json", "a symbolic link to nothing"),
    },
    "published": {("boolq-contexts/ids.npy", "a bit at the end")},  # was another result
    "stores": {("store.sqlite", "no permission")},
    "tables": {("pairs-table4.json", "a list"), ("dtr-table2.json", "first half")},
}


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    on_one_device(monkeypatch)


@pytest.mark.parametrize("name", ["tables", "published", "stores"])
def test_files_that_cannot_grow_are_one_error_and_the_job_goes_on(
    name: str, tmp_path: Path
) -> None:
    world = WORLDS[name](tmp_path)
    tried = [without_room(world, size) for size in LIMITS]
    assert not [str(case) for case in tried if case.problem]
    assert tried[0].outcome.code == 2  # not one byte could be written
    said = {"stores": "store.sqlite cannot be read or written"}.get(name, "may not grow so large")
    assert said in tried[0].outcome.said


@pytest.mark.parametrize(
    "line", [b"garbage", b"\xff", b"[" * 100_000, b"[]", b'{"step": "1"}', b'{"step": NaN}',
             b'{"step": 2, "watched": 1}', b'{"step": 2, "watched": {"recall": "x"}}'],
)  # fmt: skip
def test_a_line_of_metrics_that_is_no_step_is_named(line: bytes, tmp_path: Path) -> None:
    file = tmp_path / METRICS
    file.write_bytes(b'{"step": 1, "loss": 2.0}\n' + line + b"\n")
    with pytest.raises(InputError, match=r"metrics.jsonl:2: not a step .* remove the line"):
        read_steps(file)
    file.write_bytes(b'{"step": 1, "loss": 2.0}\n' + line)  # incomplete, as after a kill
    assert read_steps(file) == [{"step": 1, "loss": 2.0}]


@pytest.mark.parametrize("name", WORLDS)
def test_a_sample_of_faults_and_kills_of_every_job(name: str, tmp_path: Path) -> None:
    world, chance = WORLDS[name](tmp_path), random.Random(name)
    drawn = sample(world, chance, 2)
    drawn |= {
        (file, fault)
        for file in files(world.pristine)
        for end, fault in FOUND.get(name, ())
        if str(file).endswith(end)
    }
    tried = list(cases(world, lambda file, fault: (file, fault) in drawn))
    if name != "stores":  # the bytes of an SQLite file depend on its history
        tried.append(killed(world, chance.randrange(world.writes)))
    assert len(tried) >= 2 + len(FOUND.get(name, ()))
    assert not [str(case) for case in tried if case.problem]
