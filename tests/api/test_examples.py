"""The examples in the README and in docstrings of ``import jaxrag`` run."""

import doctest
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jaxrag
from tests.api.small_configs import write_small_configs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_configs(tmp_path_factory.mktemp("small"))


def examples() -> list[doctest.DocTest]:
    found = []
    for name in ("load", "search", "Rag", "run", "compare", "report"):
        globs = {"jaxrag": jaxrag}
        found += doctest.DocTestFinder(exclude_empty=True).find(
            getattr(jaxrag, name), name, globs=globs
        )
    return [one for one in found if one.examples]


def run_docstrings() -> int:
    runner = doctest.DocTestRunner()
    for one in examples():
        assert runner.run(one, clear_globs=False).failed == 0, one.name
    return int(runner.summarize(verbose=False).attempted)


def run_readme() -> None:
    (code,) = re.findall(r"## Use it\n\n```python\n(.*?)```", readme(), re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    exec(compile(code, "README.md", "exec"), {})


def readme() -> str:
    return (ROOT / "README.md").read_text("utf-8")


def test_the_readme_with_small_models(small: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(small)
    run_readme()
    shown = capsys.readouterr().out
    assert "1. Direct answer, uncertainty u = " in shown and "Below: 95 %" in shown
    assert (small / "runs" / "report.html").read_text().startswith("<!doctype html>")


def test_the_docstrings_with_small_models(small: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(small)
    assert run_docstrings() > 14


@pytest.mark.slow
def test_the_examples_with_the_real_models(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "readme", lambda: tiny_readme)
    tiny_readme = (ROOT / "README.md").read_text("utf-8").replace("@quickstart", "@tiny")
    run_readme()
    assert "Direct answer, uncertainty u = " in capsys.readouterr().out
    assert run_docstrings() > 14


def test_all_names_have_docstrings_and_are_found() -> None:
    assert len(jaxrag.NAMES) == 12
    for name in jaxrag.NAMES:
        assert getattr(jaxrag, name).__doc__, name
        assert name in dir(jaxrag)
    with pytest.raises(AttributeError, match="no attribute 'serch'"):
        jaxrag.serch  # noqa: B018


def test_the_import_loads_neither_jax_nor_numpy() -> None:
    code = "import sys, jaxrag; print({'jax', 'numpy', 'transformers', 'rich'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "set()\n", done.stderr
