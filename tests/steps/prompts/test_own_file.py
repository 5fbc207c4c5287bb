"""A set of prompts from a user's own file, for every role."""

import dataclasses
from pathlib import Path

import pytest

from jaxrag.steps import prompts
from jaxrag.steps.prompts import FIELDS
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError, Message


def write(path: Path, role: str, *, extends: str = "", extra: str = "") -> str:
    fields = "\\n".join(f"{name}: {{{name}}}" for name in FIELDS[role])
    head = f'extends = "{extends}"\n' if extends else ""
    path.write_text(f'{head}[{role}]\nuser = "Mine. {fields}"\n{extra}', "utf-8")
    return str(path)


@pytest.mark.parametrize("role", FIELDS)
def test_every_role_may_be_ones_own(role: str, tmp_path: Path) -> None:
    extra = 'system = "S"\nparse = "first_line"\nstop = ["\\n"]\n'
    extra += f'[[{role}.demonstrations]]\nuser = "u"\nassistant = "a"\n'
    own = prompts.load(write(tmp_path / "mine.toml", role, extends="dtr", extra=extra))
    template = own.role(role)
    filled = template.prompt(**{name: f"<{name}>" for name in FIELDS[role]})
    body = "\n".join(f"{name}: <{name}>" for name in FIELDS[role])
    assert filled == (
        Message("system", "S"),
        Message("user", "u"),
        Message("assistant", "a"),
        Message("user", f"Mine. {body}"),
    )
    assert (template.parse, template.stop) == ("first_line", ("\n",))
    # what the file leaves out comes from the set that it extends
    other = next(name for name in ("direct", "context", "judge") if name != role)
    assert own.role(other) == prompts.load("dtr").role(other)
    assert own.passage == prompts.load("dtr").passage


def test_a_record_of_settings_has_the_contents_of_own_files(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.toml", "direct")
    settings = {"reader": dataclasses.asdict(Reader(prompts=file)), "others": [{"prompts": "dtr"}]}
    first = prompts.own_files(settings)
    assert list(first) == [file]
    again = write(tmp_path / "same.toml", "direct")
    assert prompts.own_files({"prompts": again})[again] == first[file]
    changed = write(tmp_path / "other.toml", "direct", extra='system = "S"\n')
    assert prompts.own_files({"prompts": changed})[changed] != first[file]
    with pytest.raises(InputError, match=r"No prompts named .*missing\.toml"):
        prompts.own_files({"prompts": str(tmp_path / "missing.toml")})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("direct = 1", "direct is of type int: make it a table"),
        ("[direct]\nuser = 1", r"\[direct\] user is of type int: give a text"),
        (
            '[direct]\nuser = "{question}"\nstop = "x"',
            r"\[direct\] stop is 'x': give a list of texts",
        ),
        (
            '[direct]\nuser = "{question}"\ndemonstrations = ["x"]',
            r"demonstrations is of type list: give tables with user and assistant",
        ),
        ('[passages]\njoiner = ["x"]', r"passages\.joiner is of type list: give a text"),
        (
            '[passages]\npassage = "{titel}"',
            r"passages\.passage has a bad field: {titel}; allowed: number",
        ),
        ("passages = 1", "passages is of type int: make it a table"),
        (
            '[direct]\nuser = "{question}"\ndemonstrations = [{user = "u", assistant = 1}]',
            "demonstration 1 needs the texts user and assistant",
        ),
        ('[direct]\nuser = "{{question}}"', r"\[direct\] user must hold {question}"),
        *(
            (
                f'[direct]\nuser = "{{question}} {field}"',
                rf"\[direct\] user has a bad field: {shown}",
            )
            for field, shown in {
                "{question.text}": "{question.text}",
                "{question.__class__.__mro__}": "{question.__class__",
                "{question[0]}": r"{question\[0\]}",
                "{question:4000000000}": "{question:4000000000}",
                "{question:{question}}": "{question:{question}}",
                "{}": "{}",
                "{question": ".*a brace alone is {{",
            }.items()
        ),
        ('[passages]\npassage = "{number:4000000000}"', r"passages\.passage has a bad field"),
        ("[direct]\nuser = '{question}'\nstop = ['']", "stop has an empty text"),
        ("[direct]\nuser = '{question}'\nsystem = '{question}'", "which user alone may hold"),
        ("[dirct]\nuser = '{question}'", "dirct"),
        ("[context]\nuser = '{question}'", r"\{passages\}"),
        ("[direct]\nuser = '{question}'\nparse = 'json'", "json"),
        ("[direct]\nuser = '{question}'\nstops = ['x']", "stops"),
        ("[passages]\nformat = 'x'", r"passages\.format"),
        ("[direct", "is no valid TOML file"),
        ("a = " + "[" * 50_000 + "]" * 50_000, "is no valid TOML file: maximum recursion depth"),
        ("a" + ".a" * 50_000 + " = 1", "over 300 full stops in one line"),
        ("[direct]\nuser = '" + "{question}" * 101 + "'", r"\[direct\] user has 101 fields"),
        ("a = '" + "x" * 1_000_000 + "'", "is no valid TOML file: over 1,000,000 bytes"),
        ("[direct]\nuser" + ".a" * 250 + " = 1", r"\[direct\] user is of type dict"),
        ("[direct]\nuser = 0x" + "f" * 9_000, r"\[direct\] user is of type int"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        prompts.load(str(file))
    assert "mine.toml" in str(error.value)


def test_a_long_chain_of_files_is_one_clear_error(tmp_path: Path) -> None:
    for i in range(17):
        (tmp_path / f"{i}.toml").write_text(f'extends = "{tmp_path}/{i + 1}.toml"')
    (tmp_path / "17.toml").write_text('extends = "dtr"')
    assert prompts.load(str(tmp_path / "3.toml")).roles
    with pytest.raises(InputError, match=r"0\.toml extends a set that extends another, 16 times"):
        prompts.load(str(tmp_path / "0.toml"))
