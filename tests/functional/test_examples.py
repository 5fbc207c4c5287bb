"""The docstring of each module of equations shows a compiled, batched call, which runs."""

import doctest
import importlib
import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrag.functional

(FOLDER,) = jaxrag.functional.__path__
MODULES = sorted({path.stem for path in Path(FOLDER).glob("*.py")} - {"__init__", "on_host"})
IMPORTED = {"jax": jax, "jnp": jnp, "np": np, "partial": partial}


def run_example(name: str) -> str:
    """Runs the example of a module; its source."""
    module = importlib.import_module(f"jaxrag.functional.{name}")
    (example,) = doctest.DocTestFinder(recurse=False).find(module, extraglobs=IMPORTED)
    assert doctest.DocTestRunner().run(example).failed == 0
    return "".join(step.source for step in example.examples)


@pytest.mark.parametrize("name", MODULES)
def test_the_compiled_and_batched_form(name: str) -> None:
    source = run_example(name)
    module = importlib.import_module(f"jaxrag.functional.{name}")
    called = [getattr(module, word, None) for word in re.findall(r"(\w+)\(", source)]
    assert "jax.jit(jax.vmap(" in source or any(hasattr(call, "lower") for call in called)


def test_the_form_of_one_question_on_the_host() -> None:
    assert "on_host(mean_nll" in run_example("on_host")
