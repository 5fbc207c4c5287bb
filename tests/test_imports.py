"""A file imports only from rows above its own (see the layout in CONTRIBUTING.md)."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "jaxrag"
ROWS = (
    "types", "trace", "text", "core", "functional", "models", "engines", "retrieval", "data",
    "training", "evaluation", "steps", "runs", "methods", "reproduction", "api",
)  # fmt: skip
"""`runs` knows methods by the protocol in `steps/tools.py`; a paper's jobs, in its folder of
`methods`, execute runs."""

IMPORTABLE = ("jaxrag", "experiments", "configs", "benchmarks")
WITHOUT_JAX = ("types", "trace", "text", "core")
"""Rows that must not load JAX."""


def row(module: str) -> int:
    """Row of a dotted module name; the package itself, which imports the rest, is below all."""
    parts = module.split(".")
    return ROWS.index(parts[1]) if len(parts) > 1 else len(ROWS)


def imported(path: Path) -> list[str]:
    """Dotted names of all that a file imports, those under TYPE_CHECKING included."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def parents_too(path: Path) -> list[str]:
    """Dotted names of all that a file imports, and of the modules that contain them."""
    names = imported(path)
    return names + [name.rpartition(".")[0] for name in names]


def module_of(path: Path) -> str:
    """Dotted name of a file's module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_upwards(path: Path) -> None:
    own = module_of(path)
    for name in imported(path):
        first = name.split(".")[0]
        assert first not in ("experiments", "configs", "tests", "benchmarks"), name
        if first == "jaxrag":
            assert row(name) <= row(own), f"{own} imports {name} from a row below"
        if own.split(".")[1:2] and own.split(".")[1] in WITHOUT_JAX:
            assert first not in ("jax", "jaxlib", "flax", "optax"), f"{own} imports {name}"


def test_no_modules_import_each_other() -> None:
    """Directly or through others; imports within functions and for type checkers count, too."""
    paths = [path for folder in IMPORTABLE for path in (ROOT / folder).rglob("*.py")]
    modules = {module_of(path): path for path in paths}
    graph = {name: modules.keys() & {*parents_too(path)} for name, path in modules.items()}
    graphlib.TopologicalSorter({name: uses - {name} for name, uses in graph.items()}).prepare()


def test_methods_do_not_import_each_other() -> None:
    """What two papers need lies in steps/ or training/."""
    for path in (PACKAGE / "methods").rglob("*.py"):
        paper = path.relative_to(PACKAGE / "methods").parts[0].removesuffix(".py")
        for name in imported(path):
            parts = name.split(".")
            if parts[:2] == ["jaxrag", "methods"] and len(parts) > 2:
                assert parts[2] == paper, f"{module_of(path)} imports {name}"


def test_every_module_is_in_a_layer() -> None:
    found = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}
    assert found - {"__init__"} <= set(ROWS)


def test_class_names_are_unique() -> None:
    """But Config, which every method has."""
    where: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(module_of(path))
    assert {name: at for name, at in where.items() if len(at) > 1 and name != "Config"} == {}


def test_folders_are_small() -> None:
    """At most 20 files of its own, and no three whose names begin with the same word."""
    for folder in {path.parent for path in FILES}:
        own = [path.stem for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(own) <= 20, folder
        first = [stem.split("_")[0] for stem in own if "_" in stem]
        assert all(first.count(word) < 3 for word in first), folder
