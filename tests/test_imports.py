"""Every file imports only from rows above its own (see the layout in the README)."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = (
    "types", "functional", "models", "engines", "retrieval", "methods", "training", "data",
    "evaluation", "calls", "loading", "answering", "run", "settings", "plan", "jobs", "__main__",
)  # fmt: skip


def row(module: str) -> int:
    """Row of a dotted module name; the package itself (its version) is above all."""
    parts = module.split(".")
    return ROWS.index(parts[1]) if len(parts) > 1 else -1


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


FILES = sorted((ROOT / "jaxrag").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_upwards(path: Path) -> None:
    own = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for name in imported(path):
        first = name.split(".")[0]
        assert first not in ("experiments", "configs", "tests", "benchmarks"), name
        if first == "jaxrag" and own != "jaxrag":
            assert row(name) <= row(own), f"{own} imports {name} from a row below"


SHARED = {
    "steps", "tools", "language_model_tool", "search_tools", "inspection_tool", "prompts",
    "gates", "candidates", "selectors", "kinds", "tasks", "merging", "relevance", "rewrites",
    "rewrite_steps", "queries", "loops", "reflection", "segments",
}  # fmt: skip


def test_methods_do_not_import_each_other() -> None:
    for path in (ROOT / "jaxrag" / "methods").glob("*.py"):
        for name in imported(path):
            parts = name.split(".")
            if parts[:2] == ["jaxrag", "methods"] and len(parts) > 2:
                part_of_it = parts[2].startswith(f"{path.stem}_")
                assert parts[2] in SHARED or part_of_it, f"{path.name} imports {name}"


def test_every_module_has_a_row() -> None:
    found = {path.relative_to(ROOT / "jaxrag").parts[0].removesuffix(".py") for path in FILES}
    assert found - {"__init__"} <= set(ROWS)
