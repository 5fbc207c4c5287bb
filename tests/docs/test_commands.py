"""Every command in the README, the docs and the docstrings of configs and scripts can be parsed.

Nothing is run: configs load with the changed settings, flags exist, files and make targets exist.
"""

import ast
import importlib
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jaxrag.experiments.configuration import parse, parse_job, parse_named, parse_plain
from jaxrag.experiments.options import COMMANDS as SCRIPTS
from jaxrag.experiments.options import CONFIG, module_of
from jaxrag.experiments.sweep import grid, read_axes
from jaxrag.runs.job import Job
from jaxrag.runs.judge import Judge
from jaxrag.runs.run import Run

ROOT = Path(__file__).parent.parent.parent
START = (
    rf"(?:python -m (?:experiments|benchmarks)\.\w|jaxrag\s(?:{'|'.join(SCRIPTS)})\s|make [a-z])"
)
LOOP = re.compile(r"for (\w+) in (.+?); do\n(.*?)\n\s*done", re.S)


class Command(NamedTuple):
    """A command and the file that has it."""

    file: str
    text: str


def commands(text: str) -> list[str]:
    """Commands in lines of code and between backticks; loops of the shell are unrolled."""
    text = re.sub(r"\s*\\+\n\s*", " ", text)
    for variable, values, body in LOOP.findall(text):
        text += "".join(f"\n    {body.replace(f'${variable}', value)}" for value in values.split())
    text = LOOP.sub("", text)
    lines = re.findall(rf"^\s+({START}.*?)(?:\s+#.*|\s{{4,}}or.*)?$", text, re.M)
    spans = re.findall(rf"(?<!`)`({START}[^`]*)`", text)
    return [" ".join(one.split()) for one in (*lines, *spans)]


def collected() -> list[Command]:
    found = []
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))):
        found += [Command(path.name, one) for one in commands(path.read_text("utf-8"))]
    for folder in ("configs", "experiments"):
        for path in sorted((ROOT / folder).glob("*.py")):
            docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
            name = str(path.relative_to(ROOT))
            found += [Command(name, one) for one in commands(docstring)]
    return list(dict.fromkeys(found))


def check_script(name: str, arguments: list[str]) -> None:
    """Parses the arguments of a script in experiments/ as the script does."""
    script: Any = importlib.import_module(f"jaxrag.experiments.{module_of(name)}")
    argv, name = [name, *arguments], name.replace("_", "-")
    if name == "ask":
        assert parse_job(argv, name, kind=Run)[1]
    elif name == "explain" and "--config" not in " ".join(arguments):
        assert len(parse_named(argv, name)[0]) == 2
    elif name == "judge":
        assert parse_job(argv, name, kind=Judge)[1]
    elif CONFIG in SCRIPTS[name].arguments:
        job, values = parse(argv, name, kind=Job if name == "run" else Run)
        if name == "sweep":
            assert values.workdir and grid(job, read_axes(values))
    elif SCRIPTS[name].arguments.startswith("RUN..."):
        assert parse_named(argv, name)[0] or "--runs" in "".join(arguments)
    elif name == "store":
        named = [word for word in arguments[1:] if not word.startswith("-")]  # a sentence has none
        script.read_command(argv if named else [*argv, "PATH"])
    elif hasattr(script, "read_command"):
        script.read_command(argv)
    else:
        parse_plain(argv, name)


COMMANDS = collected()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: f"{one.file}: {one.text}"[:100])
def test_documented_commands_are_valid(command: Command, tmp_path: Path) -> None:
    existing = f"--data={tmp_path} "  # a folder of folders must exist
    program, *words = shlex.split(command.text.replace("--data=data ", existing))
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
        variables = re.findall(r"^(\w+) \?=", (ROOT / "Makefile").read_text("utf-8"), re.M)
        assert {word.partition("=")[0] for word in words} <= {*targets, *variables}
    elif program == "jaxrag":
        check_script(words[0], words[1:])
    else:
        package, *names = words[1].split(".")
        name = "/".join(names)
        if package == "experiments":
            check_script(name, words[2:])
        else:
            files = (ROOT / "benchmarks" / end for end in (f"{name}.py", f"{name}/__main__.py"))
            assert any(file.is_file() for file in files)


def test_the_documents_name_methods_that_exist() -> None:
    """``errr.py:react@DATA`` in tables and sentences."""
    found = 0
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for file, method in re.findall(r"`(?:configs/)?(\w+)\.py:(\w+)@", path.read_text("utf-8")):
            if not method.isupper():  # as in METHOD@DATA
                methods = importlib.import_module(f"jaxrag.configs.{file}").METHODS
                assert method in methods, (path.name, method)
                found += 1
    assert found > 5


def test_commands_are_extracted_verbatim() -> None:
    # a document whose commands are not recognised would pass by having none
    text = """
    python -m experiments.run --config a \\
        --workdir w
    for DATA in x y; do
        python -m experiments.run --config $DATA --workdir runs/$DATA
    done
    make quickstart   # prints
    make quickstart        or        python -m experiments.quickstart

Then `jaxrag store
verify PATH` and `make test`."""
    assert set(commands(text)) == {
        "python -m experiments.run --config a --workdir w",
        "python -m experiments.run --config x --workdir runs/x",
        "python -m experiments.run --config y --workdir runs/y",
        "make quickstart",
        "jaxrag store verify PATH",
        "make test",
    }
    files = {command.file for command in COMMANDS}
    assert {"README.md", "reproduce.md", "benchmarks.md", "training.md", "configs/dtr.py"} <= files
    assert len(COMMANDS) > 70
