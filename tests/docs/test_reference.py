"""The reference pages: they name what exists, all public names and all equations."""

import functools
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import jaxrag

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
DOCUMENTED = re.compile(r"^::: ([\w.]+)$", re.M)


def named(page: Path) -> list[str]:
    """What a page takes from docstrings."""
    return DOCUMENTED.findall(page.read_text("utf-8"))


def found(name: str) -> Any:
    """The module, class or function of a dotted name."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:end])
        if path.is_dir() or path.with_suffix(".py").is_file():
            module = importlib.import_module(".".join(parts[:end]))
            return functools.reduce(getattr, parts[end:], module)
    raise AssertionError(f"{name} is in no file")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_named_exists_and_has_a_docstring(page: Path) -> None:
    names = named(page)
    assert len(names) == len(set(names)) > 4
    assert all(found(name).__doc__ for name in names)


def test_every_public_name_is_on_the_first_page() -> None:
    names = named(ROOT / "docs" / "reference" / "index.md")
    assert {one for one in names if one.count(".") == 1} == {
        *(f"jaxrag.{name}" for name in jaxrag.NAMES),
        "jaxrag.types",
    }


def test_every_module_of_equations_is_on_its_page() -> None:
    folder = ROOT / "jaxrag" / "functional"
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if path.name != "__init__.py"
    }
    assert set(named(ROOT / "docs" / "reference" / "functional.md")) == modules
    assert len(modules) > 15


def test_the_navigation_has_every_notebook_and_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    nav = yaml.safe_load(text[text.index("nav:\n") :])
    pages = set(re.findall(r"[\w/]+\.md", str(nav)))
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    notebooks = {f"tutorials/{path.stem}.md" for path in (ROOT / "colab").glob("*.ipynb")}
    assert pages == written | notebooks
    assert len(notebooks) == 10
