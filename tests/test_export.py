"""Every jitted function of the package lowers for TPU and CUDA.

Each ``tests/**/exports.py`` has ``cases()``: jitted functions, each with abstract arguments and
keywords. A jitted function without a case is a failure.
"""

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import jax
import jax.export
import pytest

import jaxrag

ROOT = Path(__file__).parent.parent
FILES = {
    str(file.parent.relative_to(ROOT / "tests")): importlib.import_module(
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
    )
    for file in sorted(Path(__file__).parent.rglob("exports.py"))
}


def jitted_functions() -> dict[str, Any]:
    """All module-level jitted functions of jaxrag."""
    kind = type(jax.jit(lambda: None))
    return {
        f"{info.name}.{name}": value
        for info in pkgutil.walk_packages(jaxrag.__path__, "jaxrag.")
        for name, value in vars(importlib.import_module(info.name)).items()
        if isinstance(value, kind) and value.__module__ == info.name
    }


def test_every_jitted_function_has_a_case() -> None:
    tried = [function for file in FILES.values() for function, _, _ in file.cases()]
    assert not [name for name, one in jitted_functions().items() if one not in tried]


@pytest.mark.parametrize("folder", FILES)
def test_lowers_for_tpu_and_cuda(folder: str) -> None:
    for function, args, kwargs in FILES[folder].cases():
        exported = jax.export.export(function, platforms=("tpu", "cuda"))(*args, **kwargs)
        assert exported.platforms == ("tpu", "cuda"), function
