"""docs/methods against the code: cited names exist, defaults agree, references resolve."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "docs" / "methods").glob("*.md"))
PAGE = "\n".join(path.read_text("utf-8") for path in PATHS)

_CODE = re.compile(r"`([^`\n]+)`")
_CITED = re.compile(r"([a-z0-9_/]+\.py):([A-Za-z_][\w.]*)")
_FIELD = re.compile(r"[a-z_][a-z0-9_.]*")
_REFERENCE = re.compile(r"docs/methods,((?:(?:,|\s+and)?\s+\"[^\"]+\")+)")


class Setting(NamedTuple):
    """A field as a table names it, with the default that the table gives."""

    path: str
    name: str
    default: Any


def cited() -> list[tuple[str, str]]:
    """All ``path.py:name`` of the pages."""
    found = (_CITED.fullmatch(code) for code in _CODE.findall(PAGE))
    return sorted({(match[1], match[2]) for match in found if match})


def settings() -> list[Setting]:
    """Rows of the tables of settings; a name without a path is a field of the last class cited."""
    found: list[Setting] = []
    for table in re.findall(r"^\| setting \| default \|.*\n\|[-| ]+\n((?:\|.*\n)+)", PAGE, re.M):
        owner = ("", "")
        for row in table.splitlines():
            names, values = (_CODE.findall(cell) for cell in row.split("|")[1:3])
            assert len(names) == len(values) > 0, row
            for name, value in zip(names, values, strict=True):
                if match := _CITED.fullmatch(name):
                    kind, _, field = match[2].partition(".")
                    owner = (match[1], kind)
                else:
                    assert _FIELD.fullmatch(name), row
                    field = name
                found.append(Setting(owner[0], f"{owner[1]}.{field}", ast.literal_eval(value)))
    return found


def value_of(path: str, name: str) -> Any:
    """What a file of jaxrag/ defines under a dotted name; a class's field is its default."""
    module = importlib.import_module(f"jaxrag/{path}".removesuffix(".py").replace("/", "."))
    return functools.reduce(getattr, name.split("."), module)


def headings() -> set[str]:
    """The pages' headings, without their marks."""
    return set(re.findall(r"^#+ (.+)$", PAGE, re.M))


def references(text: str) -> list[str]:
    """The headings that a text refers to, however it is wrapped or commented."""
    flat = re.sub(r"\s*\n\s*(?:#\s+)?", " ", text)
    return [name for part in _REFERENCE.findall(flat) for name in re.findall(r'"([^"]+)"', part)]


@pytest.mark.parametrize(("path", "name"), cited())
def test_cited_paths_and_names_exist(path: str, name: str):
    value_of(path, name)


@pytest.mark.parametrize("setting", settings(), ids=lambda one: f"{one.path}:{one.name}")
def test_defaults_are_those_of_the_code(setting: Setting):
    assert value_of(setting.path, setting.name) == setting.default


def test_all_citations_of_the_pages_are_parsed():
    # a page whose citations or tables are written in another way would pass by having none
    assert len(cited()) > 150
    assert len(settings()) > 100
    assert Setting("methods/pairs.py", "Config.gate.f1", 0.8) in settings()
    assert {"PAIRS: the gate", "ARS-RAG: rewards"} <= headings()


def test_paths_without_a_name_exist():
    paths = {code for code in _CODE.findall(PAGE) if re.fullmatch(r"[\w/]+\.py", code)}
    roots = (ROOT / "jaxrag", ROOT)
    assert all(any((root / path).is_file() for root in roots) for path in paths), paths


def test_references_are_found_in_wrapped_text():
    text = 'Source: docs/methods, "R3: pools\n    and thresholds" and "R3: loss"; eq 3.'
    assert references(text) == ["R3: pools and thresholds", "R3: loss"]
    assert references('# docs/methods,\n# "No Retrieval".') == ["No Retrieval"]


def test_references_name_headings_of_the_pages():
    wrong, found = {}, 0
    for folder in ("jaxrag", "configs", "experiments", "tests", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".py", ".toml") or path == Path(__file__):
                continue
            names = references(path.read_text("utf-8"))
            found += len(names)
            if unknown := set(names) - headings():
                wrong[str(path.relative_to(ROOT))] = unknown
    assert not wrong
    assert found > 50  # else they are written in a way that is not recognised


def test_headings_are_unique():
    all_of_them = re.findall(r"^#+ (.+)$", PAGE, re.M)
    assert len(all_of_them) == len(set(all_of_them))


def test_each_page_begins_with_idea_command_and_result():
    for path in PATHS:
        first = path.read_text("utf-8").partition("\n## ")[0]
        assert path.stem == "index" or ("**In one minute.**" in first and "    jaxrag " in first)
