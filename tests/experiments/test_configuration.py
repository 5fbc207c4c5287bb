"""Jobs from command lines: values by type, classes and fields in any order, errors, signals."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest

from jaxrag.data.benchmark import Benchmark
from jaxrag.data.draw import Draw
from jaxrag.data.factbook import Factbook
from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.engines.vllm import Vllm
from jaxrag.experiments import configuration, report, run
from jaxrag.experiments.configuration import parse
from jaxrag.experiments.sweep import grid, read_axes
from jaxrag.methods import pairs
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.settings import CrossEncoder, QueryLikelihood
from jaxrag.retrieval.web.index import Web
from jaxrag.runs.config_file import load, load_module
from jaxrag.runs.edits import choices, edited
from jaxrag.runs.retriever_comparison import RetrieverComparison
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import FixedMix
from jaxrag.types import InputError

RUN = Run(pairs.Config(), Factbook(countries=3), Local(), Exact())


@dataclasses.dataclass(frozen=True)
class Inner:
    size: int = 1
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.size < 0:
            raise InputError(f"size is {self.size}")


@dataclasses.dataclass(frozen=True)
class Needing:
    """Has a setting without a default."""

    place: str
    inner: Inner | None = None


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    helper: Inner | Needing | None = None
    depths: tuple[int, ...] = (1, 5)
    pair: tuple[str, float] = ("a", 0.5)
    several: tuple[Inner, ...] = (Inner(), Inner(2))
    mode: Literal["fast", "slow"] = "fast"
    limit: int | None = None
    share: float = 0.0
    active: bool = False
    word: str = ""


@pytest.mark.parametrize(
    "key, text, value",
    [
        ("depths", "3,7", (3, 7)),
        ("depths", "(3, 7)", (3, 7)),
        ("depths", "4", (4,)),
        ("depths", "()", ()),
        ("pair", "b, 2", ("b", 2.0)),
        ("mode", "slow", "slow"),
        ("limit", "12", 12),
        ("limit", "None", None),
        ("share", "1e-3", 0.001),
        ("share", "2", 2.0),
        ("active", "True", True),
        ("active", "false", False),
        ("word", "None", "None"),
        ("word", "a=b,c", "a=b,c"),
    ],
)
def test_a_text_is_read_by_the_type_of_its_field(key: str, text: str, value: Any) -> None:
    found = getattr(edited(Outer(limit=3), {key: text}), key)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("turned", [False, True])
def test_a_class_and_its_fields_come_in_any_order(turned: bool) -> None:
    given = {
        "helper": "Needing", "helper.place": "x", "helper.inner": "Inner",
        "helper.inner.size": "4",
    }  # fmt: skip
    changes = dict(reversed(given.items())) if turned else given
    assert edited(Outer(), changes).helper == Needing("x", Inner(4))


def test_published_sets_have_names() -> None:
    run = edited(dataclasses.replace(RUN, limit=7), {"data": "boolq", "data.split": "train"})
    assert run.data == Benchmark("boolq", "train") and run.limit == 0
    assert edited(RUN, {"data": "popqa", "limit": "9", "data.first": "997"}).limit == 9
    assert edited(dataclasses.replace(RUN, limit=7), {"model": "Vllm"}).limit == 7
    job = edited(
        RetrieverComparison((Bm25(),), (Factbook(),), limit=5),
        {"data": "msmarco,hotpotqa", "data.0.split": "dl19"},
    )
    assert job.data == (Benchmark("msmarco", "dl19"), Benchmark("hotpotqa")) and job.limit == 0
    drawn = edited(RUN, {"data": "Draw", "data.source": "boolq", "data.train": "1600"})
    assert drawn.data == Draw(Benchmark("boolq"), train=1600)
    with pytest.raises(InputError, match=r"--config.data is 'hotpot_qa'; .*Nearest: hotpotqa\."):
        edited(RUN, {"data": "hotpot_qa"})
    with pytest.raises(
        InputError, match=r"Nearest: --config\.data=Folder --config\.data\.path=tests"
    ):
        edited(RUN, {"data": "tests"})
    with pytest.raises(InputError, match=r"Nearest: mine\.py:CLASS"):
        edited(RUN, {"method": "mine.py"})
    with pytest.raises(InputError, match=r"data\.path: give --config\.data=Folder, too"):
        parse(["run", "--config=configs/dtr.py:dtr@tiny", "--config.data.path=mine"], "run")
    with pytest.raises(InputError, match=r"data.split is 'test'; boolq has"):
        edited(RUN, {"data": "boolq", "data.split": "test"})


def test_two_configs_are_refused() -> None:
    with pytest.raises(InputError, match=r"two configs, a\.py and b\.py: run each by itself"):
        parse(["run", "--config=a.py", "--config", "b.py"], "run")


def test_classes_of_a_run() -> None:
    run = edited(RUN, {
        "index": "Web", "index.count": "5", "model": "Vllm", "model.memory": "0.5",
        "reranker": "CrossEncoder", "reranker.checkpoint": "x", "method.gate": "UncertaintyGate",
        "method.candidates": "FixedMix", "data": "Draw", "data.source": "Folder",
        "data.source.path": "p",
    })  # fmt: skip
    assert run.index == Web(count=5) and run.model == Vllm(memory=0.5)
    assert run.reranker == CrossEncoder("x") and run.method.gate == UncertaintyGate()
    assert run.method.candidates == FixedMix() and run.data == Draw(Folder("p"))
    assert edited(run, {"method": "pairs"}).method == pairs.Config()
    assert edited(run, {"index": "None", "reranker": "QueryLikelihood"}) == dataclasses.replace(
        run, index=None, reranker=QueryLikelihood()
    )


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"inner.sise": "1"}, r"no setting --config\.inner\.sise; the nearest is .*inner\.size"),
        ({"depth": "1"}, r"the nearest is --config\.depths"),
        ({"word.of": "1"}, r"no setting --config\.word\.of"),
        ({"several.2.size": "1"}, r"the nearest is --config\.several\.[01]"),
        ({"helper": "Iner"}, r"--config\.helper is 'Iner'; allowed: Inner or Needing.*est: Inner"),
        ({"inner": "None"}, r"--config\.inner is 'None'; allowed: Inner"),
        ({"helper.size": "1"}, r"helper is not set; .*--config\.helper=Inner or Needing"),
        ({"helper": "Needing"}, r"Needing needs place: give --config\.helper\.place"),
        ({"helper": "Needing", "helper.plase": "x"}, r"nearest is --config\.helper\.place"),
        ({"helper": "Inner", "helper.size": "-1"}, "size is -1"),
        ({"mode": "quick"}, r"--config\.mode is 'quick'; allowed: fast or slow"),
        ({"limit": "many"}, r"--config\.limit is 'many'; allowed: an integer"),
        ({"limit": "0.5"}, "allowed: an integer"),
        ({"share": "None"}, r"--config\.share is 'None'; allowed: a number"),
        ({"active": "maybe"}, "allowed: True or False"),
        ({"depths": "1,x"}, r"--config\.depths\.1 is 'x'; allowed: an integer"),
        ({"pair": "a"}, "allowed: 2 values with commas between them"),
    ],
)
def test_errors_name_the_invalid_setting(changes: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        edited(Outer(), changes)


class Reads(Protocol):
    """A protocol with one method, as a user may write it."""

    def read(self, path: Path, *, deep: bool) -> str: ...


def test_methods_must_have_the_parameters_of_the_protocol(monkeypatch: Any) -> None:
    @dataclasses.dataclass(frozen=True)
    class Right:
        def read(self, path: Path, *, deep: bool) -> str:
            return ""

    @dataclasses.dataclass(frozen=True)
    class Other:
        def read(self, file: Path) -> str:
            return ""

    @dataclasses.dataclass(frozen=True)
    class Returns:
        def read(self, path: Path, *, deep: bool) -> int:
            return 0

    monkeypatch.setattr("jaxrag.runs.edits._dataclasses", lambda: [Right, Other, Returns])
    assert choices(Reads) == {"Right": Right}


def run_of(*arguments: str) -> Any:
    return parse(["run", *arguments], "run")


def test_a_config_that_returns_no_job_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def get_config():\n    return {}\n")
    with pytest.raises(InputError, match="not a jaxrag"):
        load(str(file))


def swept(*arguments: str) -> dict[str, Any]:
    run, values = parse(["sweep", "--config=configs/dtr.py:dtr@tiny", *arguments], "sweep")
    return grid(run, read_axes(values))


def test_a_sweep_sets_one_value_or_a_grid() -> None:
    ((name, run),) = swept("--values=0.5").items()
    assert (name, run.name) == ("threshold=0.5", "dtr threshold=0.5")
    assert run.method.gate.threshold == 0.5
    runs = swept("--values=0.1,1,1", "--over=config.method.select.k=2,3", "--over=limit=4")
    assert [*runs] == [f"threshold={t},k={k},limit=4" for t in ("0.1", "1") for k in (2, 3)]
    last = runs["threshold=1,k=3,limit=4"]
    assert (last.method.gate.threshold, last.method.select.k, last.limit) == (1, 3, 4)
    assert last.name == "dtr threshold=1 k=3 limit=4"
    # the same last word: whole names, so that no run takes another's directory
    both = swept("--over=index.encoder.checkpoint=a", "--over=model.checkpoint=b")
    assert [*both] == ["index.encoder.checkpoint=a,model.checkpoint=b"]


LOSES_ONE = """
import gc, os, signal, sys, time
from jaxrag.experiments.configuration import script

def collected(phase, info):
    if lost:
        os.kill(os.getpid(), lost.pop())

def main(argv):
    gc.callbacks.append(collected)
    gc.collect()  # the interrupt comes within its callback, where Python drops it
    time.sleep(20)
    return 0

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
lost = [getattr(signal, sys.argv[1])] * int(sys.argv[2])
script(main)
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
@pytest.mark.parametrize("times", [1, 2])
def test_a_dropped_keyboard_interrupt_is_raised_again(name: str, code: int, times: int) -> None:
    words = [sys.executable, "-c", LOSES_ONE, name, str(times)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert found.returncode == code, found.stderr
    assert "interrupted: run the same command again" in found.stderr


@pytest.mark.parametrize(
    ("main", "arguments", "shown"),
    [
        (
            run.main,
            ("--config", "configs/dtr.py:dtr@tiny", "--config.index=Bm25"),
            (
                "dtr_wo_ugt",
                "--config.method=dtr\n",
                "--config.method.gate=UncertaintyGate\n",
                "--config.method.gate.threshold=0.4\n",
                "--config.index=Bm25\n--config.index.k",
            ),
        ),
        (report.main, (), ("--figures",)),
    ],
)
def test_help_of_configs_and_other_scripts(
    main: Any, arguments: tuple[str, ...], shown: tuple[str, ...], monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *arguments, "--help"])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # puts it back afterwards
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            configuration.script(main)
    finally:
        signal.signal(signal.SIGTERM, before)
    printed = capsys.readouterr()
    assert end.value.code == 0 and not printed.err
    assert all(text in printed.out for text in shown)


def test_values_that_are_no_texts() -> None:
    """From Python: numbers and None are read as their texts, dataclasses set as they are."""
    run = load("configs/dtr.py:dtr@tiny")
    changed = edited(
        run,
        {"limit": 3, "reranker": None, "index": Bm25(), "method.gate.threshold": 1e-05},
    )
    assert (changed.limit, changed.reranker, changed.index) == (3, None, Bm25())
    assert changed.method.gate.threshold == 1e-05
    with pytest.raises(InputError, match=r"--config\.index is a Folder; allowed: Bm25"):
        edited(run, {"index": Folder("x")})
    with pytest.raises(InputError, match="allowed: an integer"):
        edited(run, {"limit": 1.5})


PRINTS = """
import sys
from experiments.configuration import script

def main(argv):
    print("\N{GREEK CAPITAL LETTER DELTA}", flush=len(argv) > 1)
    return 0

script(main)
"""


@pytest.mark.parametrize("now", [(), ("now",)])
def test_output_that_cannot_be_written(now: tuple[str, ...]) -> None:
    words = [sys.executable, "-c", PRINTS, *now]
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert found.returncode == 1
    assert (
        found.stderr
        == "error: the output cannot be written (No space left on device); files are kept.\n"
    )


def test_another_full_disk_is_not_called_the_output() -> None:
    program = PRINTS.replace("print(", "raise OSError(28, 'No space left'); print(")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert found.returncode == 1 and b"Traceback" in found.stderr


def test_output_in_ascii() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-c", PRINTS]
    found = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (0, "\\u0394\n")


def test_devices_that_are_not_there() -> None:
    program = PRINTS.replace("print(", "import jax; jax.devices(); print(")
    environment = {**os.environ, "JAX_PLATFORMS": "cuda"}
    words = [sys.executable, "-c", program]
    found = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert found.stderr.splitlines()[-1].startswith(
        "error: JAX finds no device for JAX_PLATFORMS='cuda'"
    )


def test_a_config_and_its_imports_are_read_as_they_are_now(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(tmp_path)
    config, part = tmp_path / "own.py", tmp_path / "a_part_of_own.py"
    config.write_text("from a_part_of_own import Y\n\nX: float = 0.3\n")
    part.write_text("Y = 0.3\n")
    found = []
    for _ in range(2):
        module = load_module(str(config))
        found.append((module.X, module.Y))
        for path in (config, part):  # of equal size in the same second, as programs write them
            times = path.stat()
            path.write_text(path.read_text().replace("0.3", "0.4"))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert found == [(0.3, 0.3), (0.4, 0.4)]
    assert module.__annotations__ == {"X": float}  # no text: the file has no __future__ import


def test_a_config_that_exits(tmp_path: Path) -> None:
    config = tmp_path / "exits.py"
    config.write_text("def get_config(variant=''):\n    raise SystemExit(0)\n")
    with pytest.raises(InputError, match="line 2: SystemExit: 0"):
        run_of("--config", str(config))
