"""Damaged files of every kind: a script ends well and as before, or with one clear error."""

import random
from pathlib import Path

import pytest

from jaxrag.training.loop import METRICS, lines_until
from jaxrag.types import InputError
from tests.faults.world import LIMITS, cases, killed, sample, without_room
from tests.faults.worlds import WORLDS
from tests.training.processes import on_one_device

# what once ended in a traceback: the end of a file's path, and the fault
FOUND = {
    "run": {
        ("dataset_info.json", "a bit at a third"),
        ("features.json", "a bit at two thirds"),
        ("ids.npy", "a bit at the start"),
        ("manifest.json", "deep JSON"),
        ("vectors-00000.npy", "a directory"),
        ("config.py", "a line of garbage"),
        ("config.py", "invalid UTF-8"),
        ("encoder/config.json", "deep JSON"),
        ("tokenizer_config.json", "a symbolic link to nothing"),
        ("run/config.json", "deep JSON"),
        ("run/answers.jsonl", "a deep line"),
        ("run/answers.jsonl", "a bit at two thirds"),
    },
    "training": {
        ("run/metrics.jsonl", "a line of garbage"),
        ("run/metrics.jsonl", "a deep line"),
        ("run/metrics.jsonl", "invalid UTF-8"),
        ("run/config.json", "a list"),
    },
    "published": {
        ("boolq/manifest.json", "a bit at two thirds"),
        ("boolq-contexts/ids.npy", "a bit at the end"),  # was another result
    },
    "stores": {("store.sqlite", "NUL bytes"), ("store.sqlite", "no permission")},
    "student": {
        ("2/_CHECKPOINT_METADATA", "deep JSON"),
        ("2/_CHECKPOINT_METADATA", "a list"),
        ("record/metadata", "NaN"),
    },
    "bandit": {("run/report.html", "invalid UTF-8"), ("run/report.md", "invalid UTF-8")},
    "tables": {
        ("pairs-table4.json", "garbage"),
        ("pairs-table4.json", "deep JSON"),
        ("pairs-table4.json", "a list"),
        ("pairs-table4.json", "an empty object"),
        ("dtr-table2.json", "first half"),
        ("dtr-table2.json", "invalid UTF-8"),
    },
}


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    on_one_device(monkeypatch)


@pytest.mark.parametrize(
    "name",
    [
        *("run", "tables", "published", "stores"),
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("bandit", "training", "student")),
    ],
)
def test_what_once_was_a_traceback_is_a_clear_error(name: str, tmp_path: Path) -> None:
    def wanted(file: Path, fault: str) -> bool:
        return any(str(file).endswith(end) and fault == one for end, one in FOUND[name])

    tried = list(cases(WORLDS[name](tmp_path), wanted))
    assert len(tried) >= len(FOUND[name])
    assert not [str(case) for case in tried if case.problem]


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
        lines_until(file, 1)
    file.write_bytes(b'{"step": 1, "loss": 2.0}\n' + line)  # incomplete, as after a kill
    assert lines_until(file, 1) == ['{"step": 1, "loss": 2.0}']


@pytest.mark.parametrize("name", WORLDS)
def test_a_sample_of_faults_and_kills_of_every_job(name: str, tmp_path: Path) -> None:
    world, chance = WORLDS[name](tmp_path), random.Random(name)
    drawn = sample(world, chance, 2)
    tried = list(cases(world, lambda file, fault: (file, fault) in drawn))
    if name != "stores":  # the bytes of an SQLite file depend on its history
        tried.append(killed(world, chance.randrange(world.writes)))
    assert len(tried) >= 2
    assert not [str(case) for case in tried if case.problem]
