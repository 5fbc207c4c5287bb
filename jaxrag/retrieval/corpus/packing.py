"""An index directory as one tar file, so that an index which is built once serves other machines.

The file holds a folder with the index's name, which is a hash of what it was made from (encoder,
passages, settings), and in it the finished files that manifests list, with these manifests. It is
not compressed: vectors hardly shrink.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from jaxrag.core.durable_files import (
    LOCKS,
    atomic_write,
    exclusive_directory,
    explain_full_disk,
    rename,
    sync,
)
from jaxrag.core.packed_files import open_packed
from jaxrag.core.progress import progress
from jaxrag.retrieval.corpus.manifest import NAME, check_files, kind_of, read_manifest
from jaxrag.types import InputError

_UNFINISHED = ".unpacking"


def pack(directory: Path, file: Path) -> int:
    """Writes the complete parts of an index directory to a tar file; returns its bytes.

    Equal indexes give equal files. The hashes of all files are compared with the manifests first.

    Raises:
      InputError: no part is complete, a file is damaged, or the disk is full. An earlier ``file``
        is kept then.
    """
    found = [path for folder in _complete(directory) for path in _listed(folder)]
    if not found:
        raise InputError(f"{directory} holds no complete index; build it first")
    file.parent.mkdir(parents=True, exist_ok=True)
    with (
        atomic_write(file) as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        progress(sum(path.stat().st_size for path in found), "packing bytes") as advance,
    ):
        for path in found:
            name = PurePosixPath(directory.name, *path.relative_to(directory).parts)
            member = tarfile.TarInfo(str(name))
            member.size = path.stat().st_size
            with path.open("rb") as content:
                archive.addfile(member, content)
            advance(member.size)
    return file.stat().st_size


def _complete(directory: Path) -> Iterator[Path]:
    """The folders of an index, itself included, that have the manifest of a complete part."""
    for manifest in sorted(directory.rglob(NAME)):
        if read_manifest(manifest.parent, kind_of(manifest.parent)).complete:
            yield manifest.parent


def _listed(folder: Path) -> list[Path]:
    """The manifest of a folder and the files that it lists, all of them undamaged."""
    manifest = read_manifest(folder, kind_of(folder))
    check_files(folder, manifest, verify=True)
    return [folder / NAME, *(folder / one.name for one in manifest.files)]


def unpack(file: Path, directory: Path) -> None:
    """Makes an index directory from a tar file that `pack` wrote, whole or not at all.

    Args:
      file: the tar file, which may be compressed.
      directory: of the index; its name says which index is needed.

    Raises:
      InputError: the file is damaged, holds another index, or something that is no file of an
        index (a link, a path outside of the folder); or ``directory`` holds an index already.
    """
    with exclusive_directory(directory.parent):
        if any(directory.rglob(NAME)):
            raise InputError(
                f"{directory} holds an index already, or the beginning of one. The command without "
                "--unpack builds what is missing; to replace the index, delete it first."
            )
        unfinished = directory.with_name(directory.name + _UNFINISHED)
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            with explain_full_disk(directory.parent):
                _extract(file, directory.name, unfinished)
            _check(file, unfinished)
            for lock in directory.glob(LOCKS):
                lock.unlink()
            rename(unfinished, directory)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _extract(file: Path, name: str, target: Path) -> None:
    """Writes the files of the archive's folder ``name`` below ``target``."""
    with (
        open_packed(file) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
        progress(file.stat().st_size, "unpacking bytes") as advance,
    ):
        for member in archive:
            if member.isdir():
                continue
            path = target.joinpath(*_inside(file, member, name))
            content = archive.extractfile(member)
            assert content is not None  # it is a plain file
            _write_new(file, path, content)
            advance(member.size)


def _inside(file: Path, member: tarfile.TarInfo, name: str) -> tuple[str, ...]:
    """The parts of a member's path below the folder of the index."""
    path = PurePosixPath(member.name)
    if not member.isfile() or path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
        raise InputError(
            f"{file} holds {member.name!r}, which is no file of an index; it was not written by "
            "--pack, and nothing is unpacked."
        )
    if path.parts[0] != name:
        raise InputError(
            f"{file} holds the index {path.parts[0]}, but this config needs {name}. The name is a "
            "hash of the encoder, the passages and the settings: give the config that it was "
            "packed with."
        )
    return path.parts[1:]


def _write_new(file: Path, path: Path, content: IO[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as stream:
            shutil.copyfileobj(content, stream, 1 << 20)
    except FileExistsError:
        raise InputError(f"{file} holds {path.name!r} twice; nothing is unpacked.") from None
    sync(path)


def _check(file: Path, directory: Path) -> None:
    """Refuses unpacked files that are damaged, missing or not listed by a manifest."""
    try:
        listed = {path for folder in _complete(directory) for path in _listed(folder)}
    except InputError as error:
        raise InputError(f"{file} does not hold a whole index ({error}); get it again.") from error
    found = {path for path in directory.rglob("*") if path.is_file()}
    if not listed or found != listed:
        names = ", ".join(sorted(path.name for path in found - listed)) or "nothing"
        raise InputError(f"{file} holds {names} that no complete manifest lists; get it again.")
