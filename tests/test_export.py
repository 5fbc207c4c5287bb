"""Every jitted function of the package lowers for TPU and CUDA.

Each ``tests/**/exports*.py`` holds ``CASES``: the dotted name of a jitted function, and a
function that returns it with abstract arguments. A jitted function without a case is a failure.
"""

import importlib
import pkgutil
from pathlib import Path

import jax
import jax.export
import pytest

import jaxrag

ROOT = Path(__file__).parent.parent
FILES = sorted(Path(__file__).parent.rglob("exports*.py"))
CASES = {
    name: case
    for file in FILES
    for name, case in importlib.import_module(
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
    ).CASES.items()
}


def jitted_functions() -> set[str]:
    """Dotted names of all module-level jitted functions of jaxrag."""
    kind = type(jax.jit(lambda: None))
    found = set()
    for info in pkgutil.walk_packages(jaxrag.__path__, "jaxrag."):
        module = importlib.import_module(info.name)
        found |= {
            f"{info.name}.{name}"
            for name, value in vars(module).items()
            if isinstance(value, kind) and value.__module__ == info.name
        }
    return found


def test_every_jitted_function_has_a_case() -> None:
    assert jitted_functions() <= set(CASES)


@pytest.mark.parametrize("name", sorted(CASES))
def test_lowers_for_tpu_and_cuda(name: str) -> None:
    function, args, kwargs = CASES[name]()
    exported = jax.export.export(function, platforms=("tpu", "cuda"))(*args, **kwargs)
    assert exported.platforms == ("tpu", "cuda")
