"""Damaged files of whole jobs: every script ends well and as before, or with one clear error."""

import dataclasses
import itertools
import random
import shutil
import types
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import jaxrag.experiments.data
import jaxrag.experiments.report
import jaxrag.experiments.run
import jaxrag.experiments.status
import jaxrag.experiments.store
from jaxrag.data.benchmark import Benchmark
from jaxrag.training.loop import METRICS, read_steps
from jaxrag.types import InputError
from tests.data.published_sets import CASES, write
from tests.experiments.small_run import write_small_run
from tests.faults.damage import (
    DAMAGES,
    SECONDS,
    allow,
    call,
    copy,
    files,
    files_with_keys,
    shows_key,
)
from tests.training.processes import on_one_device


@dataclasses.dataclass(frozen=True)
class World:
    """A job with its inputs, cache and results below ``root``.

    Attributes:
      result: the file that must not change.
      inputs: first parts of paths that are the user's: another content is another result.
      scripts: scripts with their arguments; the last makes the result, the others read.
      only: the beginning of the paths of the files that are damaged.
    """

    root: Path
    result: str
    inputs: tuple[str, ...]
    scripts: tuple[tuple[Any, ...], ...]
    only: str = ""

    def make(self) -> None:
        script, *words = self.scripts[-1]
        assert call(script, *words).code == 0


def run(root: Path) -> World:
    """A run of DTR with a data folder, a model, an encoder, an index and a store."""
    write_small_run(root, questions=8)
    work, page = str(root / "run"), f"--out={root.parent / 'page' / 'report.html'}"
    make = jaxrag.experiments.run, f"--config={root / 'config.py'}", f"--workdir={work}"
    readers = (jaxrag.experiments.report, f"--runs={work}", page), (jaxrag.experiments.status, work)
    own = ("config.py", "data", "encoder", "model", "prompts.toml")
    return World(root, "run/answers.jsonl", own, (*readers, make))


def stores(root: Path) -> World:
    """The store of a run, which is merged into another."""
    run(root).make()
    shutil.rmtree(root / "run")
    (root / "run").mkdir()
    store, script = str(root / "cache" / "store.sqlite"), jaxrag.experiments.store
    actions = [(script, "report", store), (script, "verify", store)]
    actions += [(script, "verify", store, "--drop")]
    actions += [(script, "merge", str(root / "run" / "store.sqlite"), store)]
    return World(root, "run/store.sqlite", ("cache",), (*actions,), "cache/store.sqlite")


def _build_and_read(argv: Sequence[str]) -> int:
    """Builds a set, and writes all that is read of it into "read" beside its directory."""
    code = jaxrag.experiments.data.main(argv)
    cache = Path(next(one for one in argv if one.startswith("--workdir="))[10:])
    sets = [Benchmark("boolq", split=split).load(cache) for split in ("train", "dev")]
    read = [(one.questions, one.gold, one.passages.get(range(len(one.passages)))) for one in sets]
    cache.with_name("read").write_text(repr(read))
    return code


def published(root: Path) -> World:
    """A published set that is built from its files, and loaded."""
    write(CASES["boolq"].files, root / "source")
    work, source = f"--workdir={root / 'run'}", f"--source={root / 'source'}"
    script = types.SimpleNamespace(main=_build_and_read, __name__="experiments.data")
    scripts = (
        (jaxrag.experiments.data, "--list", work),
        (script, "boolq", source, work, "--any_size"),
    )
    return World(root, "read", ("source",), scripts)


WORLDS: dict[str, Callable[[Path], World]] = {"run": run, "stores": stores, "published": published}
# what once ended in a traceback, of files that no reader of tests/test_malformed.py reads
FOUND = {
    "run": {
        ("dataset_info.json", "a bit at a third"),
        ("config.py", "a line of garbage"),
        ("tokenizer_config.json", "a symbolic link to nothing"),
    },
    "published": {("boolq-contexts/ids.npy", "a bit at the end")},  # was another result
    "stores": {("store.sqlite", "no permission")},
}


def problems(world: World, pristine: Path, file: Path, fault: str) -> Iterator[str]:
    """Every script after a fault, each from the undamaged files; yields what is wrong."""
    whole = (pristine / world.result).read_bytes()
    for script, *words in world.scripts:
        copy(pristine, world.root)
        makes = script is world.scripts[-1][0] and words == [*world.scripts[-1][1:]]
        if makes and file.parts[0] != "run":
            shutil.rmtree(world.root / "run")
        DAMAGES[fault](world.root / file)
        told = call(script, *words)
        allow(world.root)
        result, shown = world.root / world.result, told.shown.encode("utf-8", "replace")
        same = result.is_file() and result.read_bytes().removeprefix(BOM_UTF8) == whole
        changed = makes and told.code == 0 and file.parts[0] not in world.inputs and not same
        late = told.code and told.seconds > SECONDS
        leaks = shows_key(shown) or files_with_keys(world.root.parent)
        if changed or late or leaks or not told.clear:
            yield f"{script.__name__} {words} after {fault} of {file}: {told} {leaks=} {changed=}"


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    on_one_device(monkeypatch)


@pytest.mark.parametrize("name", WORLDS)
def test_a_sample_of_faults_of_every_job(name: str, tmp_path: Path) -> None:
    (tmp_path / "world").mkdir()
    world, chance = WORLDS[name](tmp_path / "world"), random.Random(name)
    world.make()
    pristine = tmp_path / "pristine"
    copy(world.root, pristine)
    own = [file for file in files(pristine) if str(file).startswith(world.only)]
    drawn = set(chance.sample([*itertools.product(own, DAMAGES)], 2))
    drawn |= {(f, fault) for f in own for end, fault in FOUND[name] if str(f).endswith(end)}
    assert len(drawn) >= 1 + len(FOUND[name])
    assert not [one for case in sorted(drawn) for one in problems(world, pristine, *case)]


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
