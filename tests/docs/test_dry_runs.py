"""Documented commands do what they say with the packages that their page installs.

What only reads runs is run on made-up ones; what would answer, train, encode or make a table is
tried without that: ``--dry-run`` of the same config, or ``--check``. Such a try may end in one
sentence about something that the page says the reader has (`MISSING`).
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from colab import environment
from jaxrag.core.store import Store
from jaxrag.experiments.configuration import parse
from jaxrag.experiments.options import takes_config
from jaxrag.experiments.sweep import read_axes
from tests.docs.test_commands import COMMANDS, ROOT, Command
from tests.evaluation import fabricate

EXCEPTIONS = {
    "jaxrag data nq ": "downloads gigabytes",
    "jaxrag data psgs_w100 ": "the same",
    "nq+server": "asks a server that the page starts: tests/experiments/test_server_run.py",
    "configs/judge.py:server": "the same: tests/runs/test_judge.py",
    "report --runs": "reports of trainings: tests/evaluation/report/test_training_page.py",
}
SETS = ("nq", "popqa", "hotpotqa", "squad", "wiki_pool")
"""Folders below $JAXRAG_DATA that pages name."""
N = range(1000)
MISSING = {
    r".* is not built in \S+; build it with `jaxrag data": "a corpus that `jaxrag data` downloads",
    r"these jobs cannot be done here yet:\n  ": "data, packages and devices, which --check lists",
    r"pip install 'jaxrag\[vllm\]'": "vLLM, of which the page says how it is installed",
    r"runs/\S+ is no directory|No checkpoint at 'runs/": "the result of an earlier command",
    r"No checkpoint at '(/models/|qwen2\.5-coder)": "weights of the reader's",
}
"""How an error may begin or go on, and what the reader of the page has and the test has not."""
PLACEHOLDERS = {
    "RUN...": "runs/[dns]*", "RUN": "runs/dtr", "QUESTION": "q00001", "FOLDER": "notes",
    "FILE": "my_dtr.toml", "OTHER": "other.sqlite", "--out=DIRECTORY": "--out=imported",
    "...": "Who is it?", "~/.cache/jaxrag/store.sqlite": "store.sqlite",
}  # fmt: skip
SCRIPT = """
import contextlib, importlib, io, json, sys
from jaxrag.experiments.options import module_of

for name, *words in json.load(sys.stdin):
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            script = importlib.import_module(f"jaxrag.experiments.{module_of(name)}")
            code = script.main([name, *words])
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"
    print(json.dumps([code, told.getvalue()[-400:]]), flush=True)
"""


def extras(file: str) -> tuple[str, ...]:
    """The extras that a page names beside its commands."""
    pages = [*ROOT.glob(file), *(ROOT / "docs").rglob(file)]
    named = any("[bm25]'" in page.read_text("utf-8") for page in pages)
    return ("bm25",) if named else ()


def excepted(command: Command) -> bool:
    return any(mark in f"{command.text} " for mark in EXCEPTIONS)


def tried(text: str) -> list[str]:
    """The words of a command that are executed in its place."""
    _, name, *words = shlex.split(text)
    words = [PLACEHOLDERS.get(word, word) for word in words]
    config = "--config" in " ".join(words)
    if name == "store" and not {".sqlite"} & {word[-7:] for word in words}:
        words.append("store.sqlite")  # a sentence names none
    if name == "reproduce":
        makes = not any(word.startswith(("--list", "--pages", "--claims")) for word in words)
        return [name, *dict.fromkeys([*words, *["--check"] * makes])]
    if name == "sweep":
        axes = read_axes(parse([name, *words], name)[1])
        words += [f"--config.{key}={values[0]}" for key, values in axes.items()]
    if config and takes_config(name):
        pairs = zip(["", *words], words, strict=False)
        kept = [w for before, w in pairs if w.startswith("--config") or before == "--config"]
        return ["run", *kept, "--dry-run"]
    return [name, *words]


def documented() -> dict[tuple[str, ...], list[Command]]:
    """Commands of README and pages that are tried, by the extras of their pages."""
    found: dict[tuple[str, ...], list[Command]] = {}
    for one in COMMANDS:
        if one.file.endswith(".md") and one.text.startswith("jaxrag ") and not excepted(one):
            found.setdefault(extras(one.file), []).append(one)
    return found


def write_world(folder: Path) -> None:
    """What readers have when they come to a command: runs, documents, data, prompts, stores."""
    for name in ("dtr", "standard_rag", "no_retrieval"):
        fabricate.run(folder / "runs" / name, name, n=20)
    fabricate.run(folder / "runs" / "quickstart" / "standard_rag", "standard_rag", n=20)
    (folder / "docs").mkdir()
    (folder / "notes").mkdir()
    (folder / "notes" / "rome.txt").write_text("Rome is the capital of Italy.\n" * 20)
    (folder / "questions.txt").write_text("What is the capital of Italy?\tRome\n")
    (folder / "prices.json").write_text("{}")
    passage = {"id": "p1", "title": "Rome", "text": "Rome is the capital of Italy."}
    sets = (f"{parent}/{name}" for parent in ("sets", "data") for name in SETS)
    for data in (*sets, "data/wiki_pool", "mine"):
        answers = ["yes" if data == "mine" else "Rome"]
        for file, first in (("queries", "q"), ("train", "t")):
            write(
                folder / data / f"{file}.jsonl",
                [{"id": f"{first}{i}", "question": f"Who is {i}?", "answers": answers} for i in N],
            )
        write(folder / data / "corpus.jsonl", [passage])
        gold = [{"query_id": f"{first}{i}", "passage_ids": ["p1"]} for first in "qt" for i in N]
        write(folder / data / "qrels.jsonl", gold)
    asked = [{"id": "test_0", "question": "Where is Rome?", "golden_answers": ["Italy"]}]
    write(folder / "FlashRAG_datasets" / "nq" / "test.jsonl", asked)
    shutil.copy(ROOT / "jaxrag" / "steps" / "prompts" / "dtr.toml", folder / "my_dtr.toml")
    for name in ("store", "new", "other"):
        Store(folder / f"{name}.sqlite").close()


def write(file: Path, lines: Iterable[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.mark.slow
@pytest.mark.parametrize("named", documented())
def test_documented_commands_do_what_they_say(named: tuple[str, ...], tmp_path: Path) -> None:
    hidden = environment.hide(environment.absent_modules(named), tmp_path / "hidden")
    commands = documented()[named]
    user = tmp_path / "user"
    write_world(user)
    settings = os.environ | {"PYTHONPATH": f"{hidden}:{ROOT}"}
    settings["JAXRAG_DATA"] = "sets"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([tried(one.text) for one in commands]), env=settings, cwd=user,
        capture_output=True, text=True,
    )  # fmt: skip
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(commands), done.stderr[-500:]
    assert not [
        (one, told)
        for one, told in zip(commands, results, strict=True)
        if told[0] and not re.match(f"InputError: .*({'|'.join(MISSING)})", str(told[0]))
    ]


def test_few_commands_are_excepted() -> None:
    assert sum(map(len, documented().values())) > 120
    assert {("bm25",), ()} == {*documented()}
    left = [one for one in COMMANDS if one.file.endswith(".md") and excepted(one)]
    assert len({one.text for one in left}) <= 15
    assert all(any(mark in f"{one.text} " for one in left) for mark in EXCEPTIONS)
