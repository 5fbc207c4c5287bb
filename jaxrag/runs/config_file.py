"""Loads the job that a config file describes."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxrag.core.file_states import FileState, check_unchanged
from jaxrag.runs.job import Job
from jaxrag.types import InputError

_QUOTED = 300  # characters of an error in a config file that a message quotes
_imported: dict[str, FileState] = {}  # the user's modules that config files have imported


def load(spec: str, *, kind: Any = Job) -> Any:
    """The job of a config file, ``PATH`` or ``PATH:VARIANT``; InputError if it has no such job."""
    name, _, variant = spec.partition(":")
    path = find(name)
    module = load_module(path)
    with explained(path):
        make = getattr(module, "get_config", None)
        if make is None:
            raise InputError(f"{path} defines no get_config(variant).")
        job = make(variant) if variant else make()
    if not isinstance(job, kind):
        needed = f"{kind.__module__}.{kind.__name__}"
        raise InputError(
            f"get_config of {path} returned {type(job).__name__}, not a {needed}: give a config of "
            "that kind."
        )
    return job


def load_module(path: str) -> Any:
    """The module that a file of Python is; InputError if it is not one, or has an error.

    It, and the user's modules that it imports, are those of the files as they are now.
    """
    spec = importlib.util.spec_from_file_location(f"config_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a config file: its name must end in .py.")
    _forget_changed()
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # the dataclasses of a method defined there need it
    before = {*sys.modules}
    with explained(path):  # without Python's cache, which takes files of equal second and size
        source, name = Path(path).read_bytes(), str(Path(path).absolute())
        exec(compile(source, name, "exec", dont_inherit=True), vars(module))
    users = (str(Path.cwd()), str(Path(path).absolute().parent))
    for name in sys.modules.keys() - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        library = name.startswith("jaxrag.") or "site-packages" in file
        if file.startswith(users) and not library and Path(file).is_file():
            _imported[name] = FileState.of(file)
    return module


def _forget_changed() -> None:
    """Has the modules that config files imported read again if one of their files has changed."""
    try:
        check_unchanged(_imported.values())
    except InputError:
        for name, state in _imported.items():
            sys.modules.pop(name, None)
            with contextlib.suppress(OSError):
                Path(importlib.util.cache_from_source(state.path)).unlink()
        _imported.clear()


def find(path: str) -> str:
    """Path of a config file, or of the one installed with jaxrag; InputError if there is none."""
    if Path(path).is_file():
        return path
    folder, *rest = Path(path).parts or ("",)
    installed = Path(__file__).parents[1].joinpath(folder, *rest)
    if folder == "configs" and installed.is_file():
        return str(installed)
    package = Path(__file__).parents[1]
    files = sorted(str(file.relative_to(package)) for file in package.glob("configs/[a-z]*.py"))
    near, *_ = difflib.get_close_matches(path[:100], files, 1, 0)
    raise InputError(
        f"no config file {path}; nearest: {near}. Each paper has one in configs/; the baselines "
        "are in configs/baselines.py, such as configs/baselines.py:standard_rag@quickstart."
    )


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turns an error in a config file into an InputError with its line."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        steps = traceback.extract_tb(error.__traceback__)
        lines = [step.lineno for step in steps if Path(step.filename) == Path(path).absolute()]
        line = error.lineno if isinstance(error, SyntaxError) else next(reversed(lines), None)
        where = f"{path}, line {line}" if line else path
        text = " ".join(str(error).split())
        quoted = text if len(text) < _QUOTED else f"{text[:_QUOTED]}..."
        raise InputError(
            f"{where}: {type(error).__name__}: {quoted}. Correct that file; configs/ has examples."
        ) from error
