"""The manifest of a directory of index files: what they were made from, and whether to trust them.

Files are written beside their final place, flushed to disk and renamed, and only then entered in
``manifest.json``, which is replaced in the same way. So whatever moment a build is killed at, the
manifest lists only files that are whole.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.core.durable_files import write_text
from jaxrag.core.hashing import canonical, digest, digest_file
from jaxrag.types import InputError

NAME = "manifest.json"
_VERSION = 1
_FULL_CHECK = 2**30  # bytes; up to here a directory's hashes are verified whenever it is opened


class File(NamedTuple):
    """A finished file of an index."""

    name: str
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What an index was made from (``settings``, plain JSON) and its finished files."""

    kind: str
    settings: Mapping[str, Any]
    files: tuple[File, ...] = ()
    complete: bool = False

    @property
    def content(self) -> str:
        """One hash of the settings and of all bytes of all files."""
        hashes = [file.sha256 for file in sorted(self.files)]
        return digest(self.kind, canonical(self.settings), *hashes)

    def write(self, directory: Path) -> None:
        """Replaces the directory's manifest, all or nothing."""
        document = dataclasses.asdict(self) | {"version": _VERSION}
        document["files"] = [file._asdict() for file in self.files]
        write_text(directory / NAME, json.dumps(document, indent=1, ensure_ascii=False))


def read_manifest(directory: Path, kind: str) -> Manifest:
    """The directory's manifest; InputError where there is none, or none of this kind."""
    path = directory / NAME
    try:
        document = json.loads(path.read_bytes())
        if (document["kind"], document["version"]) != (kind, _VERSION):
            raise InputError(
                f"{path} describes a {document['kind']!r} of version {document['version']}, but a "
                f"{kind!r} of version {_VERSION} is needed; give another directory or rebuild"
            )
        files = tuple(File(**file) for file in document["files"])
        return Manifest(kind, document["settings"], files, document["complete"])
    except FileNotFoundError:
        raise InputError(
            f"{directory} holds no index ({NAME} is missing); build it first"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged ({error!r}); delete {directory} and rebuild") from None


def check_settings(directory: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuses an index that was made from something else, naming every difference."""
    differences = list(_differences(found, wanted, ""))
    if differences:
        raise InputError(
            f"the index in {directory} was made from something else:\n  "
            + "\n  ".join(differences)
            + "\nopen it with what it was made from, or build another in a new directory"
        )


def open_manifest(
    directory: Path, kind: str, wanted: Mapping[str, Any], *, verify: bool | None
) -> Manifest:
    """The manifest of a whole, sound index that was made from ``wanted``.

    Settings that are not in ``wanted``, such as those of the layout, may be any.

    Raises:
      InputError: see `read_manifest`, `check_settings` and `check_files`.
    """
    manifest = read_manifest(directory, kind)
    check_settings(directory, {key: manifest.settings.get(key) for key in wanted}, wanted)
    check_files(directory, manifest, verify=verify)
    return manifest


def _differences(found: Any, wanted: Any, path: str) -> Iterator[str]:
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        for key in sorted(found.keys() | wanted.keys()):
            name = f"{path}.{key}" if path else key
            yield from _differences(found.get(key), wanted.get(key), name)
    elif found != wanted:
        yield f"{path}: the index has {found!r}, this run has {wanted!r}"


def damage(directory: Path, file: File, *, hashes: bool) -> str | None:
    """What is wrong with a finished file, or None; reads all of it where ``hashes``."""
    path = directory / file.name
    if not path.is_file():
        return f"{path} is missing"
    if path.stat().st_size != file.bytes:
        return f"{path} has {path.stat().st_size:,} bytes instead of {file.bytes:,}"
    if hashes and digest_file(path) != file.sha256:
        return f"{path} has changed since it was written (its hash differs)"
    return None


def check_files(directory: Path, manifest: Manifest, *, verify: bool | None) -> None:
    """Refuses an incomplete or damaged index; sizes always, hashes where ``verify``.

    ``verify`` None verifies hashes of an index of up to 1 GiB.
    """
    if not manifest.complete:
        raise InputError(
            f"the index in {directory} is incomplete ({len(manifest.files)} files finished); "
            "run its build again: it goes on where it stopped"
        )
    if verify is None:
        verify = sum(file.bytes for file in manifest.files) <= _FULL_CHECK
    for file in manifest.files:
        if problem := damage(directory, file, hashes=verify):
            raise InputError(
                f"the index is damaged: {problem}; run its build again: "
                "only what is missing or damaged is made anew"
            )


def finished(path: Path) -> File:
    """The manifest's entry for a file that is whole."""
    return File(path.name, path.stat().st_size, digest_file(path))
