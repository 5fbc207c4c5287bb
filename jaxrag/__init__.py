"""jaxrag: adaptive retrieval-augmented generation in JAX.

    import jaxrag

    rag = jaxrag.load("configs/dtr.py:dtr@quickstart")
    rag.answer("What is the capital of Peru?")

The names below are imported when they are first used, so that ``import jaxrag`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrag.api.rag import Rag as Rag
    from jaxrag.api.rag import load as load
    from jaxrag.api.rag import search as search
    from jaxrag.api.results import compare as compare
    from jaxrag.api.results import report as report
    from jaxrag.api.results import run as run
    from jaxrag.data.benchmark import Benchmark as Benchmark
    from jaxrag.data.folder import Folder as Folder
    from jaxrag.data.published import Published as Published
    from jaxrag.runs.run import Run as Run
    from jaxrag.types import InputError as InputError
    from jaxrag.types import Question as Question

__version__ = "0.1.0"

NAMES = {
    "Benchmark": "jaxrag.data.benchmark",
    "Folder": "jaxrag.data.folder",
    "InputError": "jaxrag.types",
    "Published": "jaxrag.data.published",
    "Question": "jaxrag.types",
    "Rag": "jaxrag.api.rag",
    "Run": "jaxrag.runs.run",
    "compare": "jaxrag.api.results",
    "load": "jaxrag.api.rag",
    "report": "jaxrag.api.results",
    "run": "jaxrag.api.results",
    "search": "jaxrag.api.rag",
}
"""The public names and the modules that define them."""


def __getattr__(name: str) -> Any:
    """Imports one of the public names at its first use (PEP 562)."""
    if name not in NAMES:
        raise AttributeError(f"module 'jaxrag' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(NAMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
