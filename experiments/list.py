"""Lists methods by config, data sets, engines, and prompt sets.

    jaxrag list methods data

Without names, all four. A variant of a config is METHOD@DATA[+ENGINE] (`configs.parts`). Published
sets and their state: ``jaxrag data --list``; the papers' tables: ``jaxrag reproduce --list``.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import textwrap
from collections.abc import Callable, Mapping, Sequence

from jaxrag import configs
from jaxrag.configs import data
from jaxrag.engines.language_model import ModelSettings
from jaxrag.experiments.configuration import parse_named, script
from jaxrag.runs.edits import choices
from jaxrag.steps import prompts
from jaxrag.types import InputError

_WRAP = textwrap.TextWrapper(
    100, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
)


def main(argv: Sequence[str]) -> int:
    """Prints the named lists, or all."""
    for name in read_command(argv):
        print(name)
        for head, words in LISTS[name]().items():
            print(_WRAP.fill(f"{head}: {words}"))
    return 0


def read_command(argv: Sequence[str]) -> Sequence[str]:
    """The lists to print; InputError if there is no such list."""
    names, _ = parse_named(argv, "list")
    for name in names:
        if name not in LISTS:
            near = difflib.get_close_matches(name, LISTS, 1, 0)[0]
            raise InputError(f"no list {name!r}: {', '.join(LISTS)}. Nearest: {near}.")
    return names or [*LISTS]


def _methods() -> Mapping[str, str]:
    """METHOD by config file."""
    modules = (module.name for module in pkgutil.iter_modules(configs.__path__))
    imported = ((name, importlib.import_module(f"jaxrag.configs.{name}")) for name in modules)
    return {f"configs/{n}.py": ", ".join(m.METHODS) for n, m in imported if hasattr(m, "METHODS")}


def _data() -> Mapping[str, str]:
    """DATA by the configs that have it."""
    return {
        "configs/dtr.py, pairs.py, baselines.py": ", ".join(data.PAIRS),
        "configs/r3.py": ", ".join(data.R3),
        "configs/errr.py": ", ".join(data.ERRR),
        "configs/ars.py": ", ".join(data.ARS),
        "any config": "--config.data=Folder --config.data.path=DIRECTORY, or --config.data=nq",
    }


LISTS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "methods": _methods,
    "data": _data,
    "engines": lambda: {
        n: (one.__doc__ or "").partition("\n")[0] for n, one in choices(ModelSettings).items()
    },
    "prompts": lambda: {"--config.method.reader.prompts": ", ".join(prompts.shipped())},
}


if __name__ == "__main__":
    script(main)
