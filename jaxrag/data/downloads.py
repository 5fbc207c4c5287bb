"""Published files: found in a directory of the user, or downloaded."""

from __future__ import annotations

from pathlib import Path

_PACKED = (".gz", ".bz2", ".xz")
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2")


def is_archive(address: str) -> bool:
    """Whether the name or address of a file is that of an archive of several files."""
    return address.lower().endswith(_ARCHIVES)


def find_file(directory: Path, name: str) -> Path | None:
    """The file of a published name in a directory or its sub-folders; None if it is not there.

    A packed form (name.gz) serves too, and for the name of a packed file its unpacked form. The
    file with the shortest path comes first.
    """
    plain = next((name.removesuffix(s) for s in _PACKED if name.endswith(s)), name)
    for wanted in dict.fromkeys((name, plain, *(plain + suffix for suffix in _PACKED))):
        found = sorted(directory.rglob(wanted), key=lambda path: (len(path.parts), path))
        for path in found:
            if path.is_file():
                return path
    return None
