"""Loads the job that a config file describes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from jaxrag.runs.job import Job
from jaxrag.types import InputError


def load(spec: str, *, kind: Any = Job) -> Any:
    """The job of a config file, written as ``PATH`` or ``PATH:VARIANT``.

    Raises:
      InputError: no such file, no ``get_config`` in it, no such variant, or not a job of ``kind``.
    """
    path, _, variant = spec.partition(":")
    if not Path(path).is_file():
        raise InputError(
            f"no config file {path}. Each paper has one in configs/; the baselines are in "
            "configs/baselines.py, such as configs/baselines.py:standard_rag@quickstart."
        )
    module_spec = importlib.util.spec_from_file_location(f"config_{Path(path).stem}", path)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module  # the dataclasses of a method defined there need it
    module_spec.loader.exec_module(module)
    make = getattr(module, "get_config", None)
    if make is None:
        raise InputError(f"{path} defines no get_config(variant).")
    job = make(variant) if variant else make()
    if not isinstance(job, kind):
        wanted = f"{kind.__module__}.{kind.__name__}"
        raise InputError(f"get_config of {path} returned {type(job).__name__}, not a {wanted}.")
    return job
