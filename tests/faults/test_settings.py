"""Malformed settings of every script: one clear error, within seconds."""

import types
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from jaxrag.experiments import __main__, options
from jaxrag.runs import parts
from tests.faults.damage import call, shows_key

ROOT = Path(__file__).parent.parent.parent
DTR, R3 = "--config=configs/dtr.py:dtr@tiny", "--config=configs/r3.py:train_r3@factbook"
R3RUN = "--config=configs/r3.py:r3@tiny"
LONG = "x" * 100_000

RUN = {  # arguments after --config=configs/dtr.py:dtr@tiny
    "no such setting": "--config.method.nothing=1",
    "a setting of a number": "--config.limit.more=1",
    "a setting of nothing": "--config.reranker.batch=1",
    "two points": "--config..limit=1",
    "a point at the end": "--config.limit.=1",
    "only a point": "--config.=1",
    "a word for a number": "--config.limit=many",
    "a negative number": "--config.limit=-1",
    "an enormous number": "--config.limit=" + "9" * 5000,
    "NaN": "--config.method.gate.threshold=nan",
    "infinity": "--config.method.select.k=inf",
    "NUL": "--config.limit=\0",
    "an unpaired surrogate": "--config.limit=\udcff",
    "a long word": f"--config.limit={LONG}",
    "a long name": f"--config.{LONG}=1",
    "None for a method": "--config.method=None",
    "no passages": "--config.method.select.k=0",
    "no new tokens": "--config.method.reader.answer_tokens=0",
    "a path of another file system": "--config.cache=gs://bucket/cache",
    "a flag of a long name": f"--{LONG}=1",
    "an argument without a name": "name",
    "a directory of another file system": "--workdir=s3://bucket/run",
    "processes that are none": "--distributed=localhost",
    "a process too many": "--distributed=localhost:1,2,2",
    "processes of words": "--distributed=localhost:1,a,b",
}
TRAINING = {  # after the config of a training
    "the optimiser's field elsewhere": "--config.training.update.learning_rate=1",
    "a training's field misspelt": "--config.training.learning_rat=1",
    "no steps": "--config.training.steps=0",
    "NaN": "--config.training.learning_rate=nan",
    "a section that is none": "--config.update.learning_rate=1",
}
OTHERS = {
    "run, no config": ("run", "--workdir=x"),
    "run, no file": ("run", "--config=configs/none.py"),
    "run, a directory": ("run", "--config=configs"),
    "run, two variants": ("run", "--config=configs/dtr.py:dtr@tiny@tiny"),
    "run, no method": ("run", "--config=configs/dtr.py:nothing@tiny"),
    "run, no data": ("run", "--config=configs/dtr.py:dtr@nothing"),
    "run, no Python": ("run", "--config=README.md"),
    "run, a NUL": ("run", "--config=configs/\0.py"),
    "run, a surrogate": ("run", "--config=configs/\udcff.py"),
    "run, a long path": ("run", f"--config=configs/{LONG}.py"),
    "run, no directory": ("run", DTR),
    "run, help of nothing": ("run", "--config=nothing.py", "--help"),
    "run, help of no Python": ("run", "--config=README.md", "--help"),
    "run, a training for a run": ("sweep", R3, "--workdir=x", "--values=1"),
    "sweep, no values": ("sweep", DTR, "--workdir=x"),
    "sweep, a word": ("sweep", DTR, "--workdir=x", "--key=limit", "--values=many"),
    "sweep, no grid": ("sweep", DTR, "--workdir=x", "--over=limit"),
    "judge, no run": ("judge", "nowhere", "--config=configs/judge.py"),
    "judge, no prompts": ("judge", "configs", "--config=configs/judge.py", "--config.prompts=x"),
    "report, no directory": ("report", "--runs=nowhere"),
    "report, a file": ("report", "--runs=README.md"),
    "report, a foreign directory": ("report", "--runs=configs"),
    "status, a file": ("status", "README.md"),
    "status, a long path": ("status", LONG),
    "status, a NUL": ("status", "a\0b"),
    "index, no share": ("index", DTR, "--shard=one"),
    "index, two ways": ("index", DTR, "--shard=0/2", "--distributed=auto"),
    "index, no index": ("index", DTR, "--config.index=None"),
    "data, no set": ("data", "nqq"),
    "data, a part of a set": ("data", "boolq", "--first=3"),
    "reproduce, no table": ("reproduce", "dtr/table99"),
    "reproduce, no engine": ("reproduce", "dtr/table2", "--engine=none"),
    "reproduce, no set": ("reproduce", "dtr/table4", "--scale=tiny", "--only=nothing"),
    "reproduce, another's record": ("reproduce", "--claims=/dev/null/x", "--workdir=README.md"),
    "quickstart, a word": ("quickstart", "word"),
    "ask, no such option": ("ask", DTR, "--jsn", "Who?"),
    "predict, no file": ("predict", DTR, "--questions=x"),
    "predict, no questions": (
        "predict",
        DTR,
        "--config.cache=x",
        "--questions=nowhere",
        "--out=/dev/null/x",
    ),
    "predict, a training": ("predict", R3, "--questions=README.md", "--out=/dev/null/x"),
    "explain, no such run": ("explain", "nowhere", "Who?"),
    "explain, a run alone": ("explain", "nowhere"),
    "import, no place": ("import", "docs"),
    "import, no documents": ("import", "tests/faults", "--out=/dev/null/x"),
    "import, no questions": ("import", "docs", "--out=/dev/null/x", "--questions=nowhere"),
    "import, no directory": ("import", "docs", "--out=/dev/null/x"),
    "list, nothing of the kind": ("list", "metods"),
    "ask, no config": ("ask", "Who?"),
    "ask, no question": ("ask", DTR),
    "ask, a training": ("ask", R3, "Who?"),
    "ask, a setting": ("ask", DTR, "--config.method.nothing=1", "Who?"),
    "explain, no question": ("explain", R3RUN),
    "explain, a question and a run": ("explain", R3RUN, "--question=Who?", "--workdir=x"),
    "explain, none": ("explain", R3RUN, "--question=Who?", "--k=0"),
    "explain, no SiDR": ("explain", DTR, "--question=Who?"),
    "explain, no run": ("explain", R3RUN, "--workdir=nowhere"),
    "prompts, no action": ("prompts", "look", "dtr"),
    "prompts, no set": ("prompts", "check", "README.md"),
    "prompts, no file": ("prompts", "check", "nowhere.toml", "--like=dtr"),
    "prompts, no TOML": ("prompts", "check", "README.md", "--like=dtr"),
    "store, no path": ("store", "report"),
    "store, no file": ("store", "report", "nowhere.sqlite"),
    "store, a directory": ("store", "verify", "configs"),
    "store, no store": ("store", "verify", "README.md"),
    "store, merge of nothing": ("store", "merge", "x.sqlite"),
    "store, merge of no file": ("store", "merge", "/dev/null/x.sqlite", "nowhere.sqlite"),
    "store, merge of itself": ("store", "merge", "nowhere.sqlite", "nowhere.sqlite"),
    "store, a NUL": ("store", "report", "a\0b"),
    "store, a long path": ("store", "report", LONG),
    "jaxrag, a long word": ("jaxrag", LONG),
    "jaxrag, a script's flag": ("jaxrag", "status", "--runs=x"),
    "status, unpaired surrogate": ("status", "a\udcffb"),
    "compare, a file alone": ("compare", "README.md"),
    "compare, no run": ("compare", "nowhere"),
    "compare, no runs below": ("compare", "configs"),
    "compare, a pattern of nothing": ("compare", "nowhere/*"),
    "cases, no run": ("cases", "nowhere"),
    "cases, no such kind": ("cases", "configs", "--kinds=lost"),
    "report, no run": ("report", "nowhere"),
    "data, no source": ("data", "boolq", "--source=nowhere"),
    "data, a source that is a file": ("data", "boolq", "--source=README.md"),
    "data, no split": ("data", "boolq", "--source=configs", "--splits=none"),
}
DO_WITHOUT = ("list", "quickstart")
"""Commands that need no arguments."""
CASES = {
    **{f"{name}, nothing": (name,) for name in options.COMMANDS if name not in DO_WITHOUT},
    **{f"{name}, a flag": (name, "--nothing") for name in options.COMMANDS},
    **{f"run, {name}": ("run", DTR, "--workdir=/dev/null/x", one) for name, one in RUN.items()},
    **{f"training, {name}": ("run", R3, one) for name, one in TRAINING.items()},
    **OTHERS,
}


def module_of(script: str) -> Any:
    """The module of a script; "jaxrag" is the command that has all of them."""
    if script == "jaxrag":
        return types.SimpleNamespace(__name__=script, main=lambda _: __main__.main())
    return import_module(f"jaxrag.experiments.{options.module_of(script)}")


@pytest.mark.parametrize("name", CASES)
def test_a_malformed_setting_is_one_clear_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    script, *arguments = CASES[name]
    own = ("--workdir=x", "--config.cache=x")
    told = [one.replace("=x", f"={tmp_path}/x") if one in own else one for one in arguments]
    outcome = call(module_of(script), *told)
    assert outcome.clear and outcome.code, outcome
    assert len(outcome.said) < 5_000 and outcome.seconds < 30
    assert not shows_key(outcome.shown.encode("utf-8", "replace"))


@pytest.mark.parametrize("fault", ["missing", "a directory", "no TOML"])
def test_prompts_are_checked_before_data_and_models_are_loaded(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(parts, "load_data", lambda *_: pytest.fail("the data are loaded"))
    file = tmp_path / "prompts.toml"
    prepared = {"a directory": file.mkdir, "no TOML": lambda: file.write_text("{")}
    prepared.get(fault, lambda: None)()
    outcome = call(
        import_module("jaxrag.experiments.run"),
        DTR,
        f"--config.method.reader.prompts={file}",
        f"--workdir={tmp_path / 'run'}",
    )
    assert outcome.code == 2 and str(file) in outcome.said
    assert not (tmp_path / "run").exists()


def test_many_malformed_settings_of_every_script_are_tried() -> None:
    assert len(CASES) >= 120
    assert {script for script, *_ in CASES.values()} == {*options.COMMANDS, "jaxrag"}
