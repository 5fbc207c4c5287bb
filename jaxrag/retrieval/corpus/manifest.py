"""The manifest of an index directory: the sources of the index, and its finished files.

Files are renamed once they are on disk, so a build that is killed lists only complete files.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxrag.core.durable_files import explain_limits, write_text
from jaxrag.core.hashing import canonical, digest, digest_file
from jaxrag.core.json_text import parse_json
from jaxrag.types import InputError

if TYPE_CHECKING:
    from jaxrag.retrieval.corpus.passages import Passages

NAME = "manifest.json"
_PARTS = "manifest-*-of-*.json"
_VERSION = 1
_FULL_CHECK = 2**30  # bytes; hashes of smaller indexes are verified whenever they are opened


class File(NamedTuple):
    """A finished file of an index."""

    name: str
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Sources of an index (``settings``, plain JSON) and its finished files."""

    kind: str
    settings: Mapping[str, Any]
    files: tuple[File, ...] = ()
    complete: bool = False

    @functools.cached_property
    def content(self) -> str:
        """Hash of the settings and of all files' bytes."""
        hashes = [file.sha256 for file in sorted(self.files)]
        return digest(self.kind, canonical(self.settings), *hashes)

    def write(self, directory: Path, name: str = NAME) -> None:
        """Replaces the directory's manifest atomically."""
        document = dataclasses.asdict(self) | {"version": _VERSION}
        document["files"] = [file._asdict() for file in self.files]
        write_text(directory / name, json.dumps(document, indent=1, ensure_ascii=False))


def source_of(passages: Passages, **made_with: str) -> dict[str, Any]:
    """Manifest settings that bind an index to its corpus and, by name, to identities (JSON)."""
    identities = {name: json.loads(identity) for name, identity in made_with.items()}
    return identities | {"passages": {"identity": passages.identity, "count": len(passages)}}


def finished(path: Path) -> File:
    """The manifest entry of a complete file."""
    return File(path.name, path.stat().st_size, digest_file(path))


def part_name(number: int, count: int) -> str:
    """Name of the manifest of the files that process ``number`` of ``count`` has finished."""
    return _PARTS.replace("*", "{}").format(number, count)


def part_manifests(directory: Path, kind: str) -> dict[str, Manifest]:
    """The manifests of several processes' parts of an index, by name; see `read_manifest`."""
    paths = sorted(directory.glob(_PARTS))
    return {path.name: read_manifest(directory, kind, name=path.name) for path in paths}


def read_manifest(directory: Path, kind: str, *, name: str = NAME) -> Manifest:
    """The directory's manifest; InputError if it is missing, damaged or of another kind."""
    path = directory / name
    try:
        with explain_limits(path):
            document = parse_json(path.read_bytes())
        if (document["kind"], document["version"]) != (kind, _VERSION):
            raise InputError(
                f"{path} describes a {document['kind']!r} of version {document['version']}, but a "
                f"{kind!r} of version {_VERSION} is needed; give another directory or rebuild"
            )
        files = tuple(File(**file) for file in document["files"])
        return Manifest(kind, document["settings"], files, document["complete"])
    except FileNotFoundError:
        if any(directory.glob(_PARTS)):
            raise InputError(
                f"{directory} holds parts of an index; a build without --shard finishes it"
            ) from None
        raise InputError(
            f"{directory} holds no index ({name} is missing); build it first"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged ({error!r}); delete {directory} and rebuild") from None


def open_manifest(
    directory: Path, kind: str, wanted: Mapping[str, Any], *, verify: bool | None
) -> Manifest:
    """The manifest of an undamaged index made from ``wanted``, which may leave settings out.

    InputError as `read_manifest`, `check_settings` and `check_files`.
    """
    manifest = read_manifest(directory, kind)
    check_settings(directory, {key: manifest.settings.get(key) for key in wanted}, wanted)
    check_files(directory, manifest, verify=verify)
    return manifest


def check_settings(directory: Path, recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuses an index that was made from something else, naming every difference."""
    differences = list(_differences(recorded, wanted, ""))
    if differences:
        raise InputError(
            f"the index in {directory} was made from something else:\n  "
            + "\n  ".join(differences)
            + "\nopen it with what it was made from, or build another in a new directory"
        )


def _differences(recorded: Any, current: Any, path: str) -> Iterator[str]:
    if isinstance(recorded, Mapping) and isinstance(current, Mapping):
        for key in sorted(recorded.keys() | current.keys()):
            name = f"{path}.{key}" if path else key
            yield from _differences(recorded.get(key), current.get(key), name)
    elif recorded != current:
        yield f"{path}: the index has {recorded!r}, this run has {current!r}"


def check_files(directory: Path, manifest: Manifest, *, verify: bool | None) -> None:
    """Refuses an incomplete or damaged index; compares sizes always, hashes if ``verify``.

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
                "only missing or damaged files are built again"
            )


def damage(directory: Path, file: File, *, hashes: bool) -> str | None:
    """What is wrong with a finished file, or None; reads the whole file if ``hashes``."""
    path = directory / file.name
    if not path.is_file():
        return f"{path} is missing"
    if path.stat().st_size != file.bytes:
        return f"{path} has {path.stat().st_size:,} bytes instead of {file.bytes:,}"
    if hashes and digest_file(path) != file.sha256:
        return f"{path} has changed since it was written (its hash differs)"
    return None


def state_of(directory: Path, kind: str, *, verify: bool | None = None) -> str:
    """State of an index for a plan: "built", "not built yet", unfinished, or what is wrong.

    ``verify``: see `check_files`.
    """
    if not directory.exists():
        return "not built yet"
    try:
        manifest = read_manifest(directory, kind)
        if not manifest.complete:
            return f"unfinished, {len(manifest.files)} of its files are there; the run goes on"
        check_files(directory, manifest, verify=verify)
    except InputError as error:
        return str(error)
    return "built"
