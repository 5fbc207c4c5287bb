"""Documented runs on data of our own plan well with the packages that their page installs."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from colab import environment
from tests.docs.test_commands import COMMANDS, ROOT, Command

OWN_DATA = re.compile(r"configs/\w+\.py:\w+@(tiny|quickstart|factbook|factbook_known)\b")
EXCEPTIONS = {
    "=runs/": "reads a checkpoint or a table that an earlier command makes",
    "=DIRECTORY": "the same",
    "--config.data=Folder": "a folder of the reader's own",
    "--config.data=Published": "files that the reader has",
    "--config.data=nq": "a set that is built first",
    "--config.data=msmarco": "the same",
}
SCRIPT = """
import contextlib, io, json, sys
from jaxrag.experiments import run

for words in json.load(sys.stdin):
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            code = run.main(["run", *words])
        except Exception as error:
            code = repr(error)
    print(json.dumps([code, told.getvalue()[-400:]]), flush=True)
"""


def extras(file: str) -> tuple[str, ...]:
    """The extras that a page names beside its commands."""
    pages = [*ROOT.glob(file), *(ROOT / "docs").rglob(file)]
    named = any("[bm25]'" in page.read_text("utf-8") for page in pages)
    return ("bm25",) if named else ()


def dry_runs() -> dict[tuple[str, ...], list[Command]]:
    """Commands by the extras of their pages."""
    found: dict[tuple[str, ...], list[Command]] = {}
    for one in COMMANDS:
        ours = one.text.startswith("jaxrag run") and OWN_DATA.search(one.text)
        if ours and not any(mark in one.text for mark in EXCEPTIONS):
            found.setdefault(extras(one.file), []).append(one)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("named", dry_runs())
def test_documented_runs_plan_well(named: tuple[str, ...], tmp_path: Path) -> None:
    hidden = environment.hide(environment.absent_modules(named), tmp_path / "hidden")
    commands = dry_runs()[named]
    words = [[*dict.fromkeys([*shlex.split(one.text)[2:], "--dry-run"])] for one in commands]
    settings = os.environ | {"PYTHONPATH": f"{hidden}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(words), env=settings, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(commands), done.stderr[-500:]
    assert not [(one, told) for one, told in zip(commands, results, strict=True) if told[0]]


def test_the_pages_have_such_commands() -> None:
    assert sum(map(len, dry_runs().values())) > 15
    assert {("bm25",), ()} == {*dry_runs()}
