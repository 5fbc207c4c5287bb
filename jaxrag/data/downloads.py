"""Published files: found in a directory of the user, or downloaded, resumed and compared.

An address is one of

- ``hf:OWNER/NAME:FILE``: a file of a data set of the Hugging Face hub, kept in the hub's own cache;
- ``https://HOST/FILE``, kept in the directory of the downloads;
- one of these with ``#MEMBER``: a file of that zip or tar archive;
- ``FILE`` alone: a file that no program can download.

``downloads.json`` in the directory records size, SHA-256 and, of the hub, the commit of each file
at its first download; later ones are compared with it. Nothing is downloaded but by
`Downloads.get`.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2 as httpx

from jaxrag.core.durable_files import (
    atomic_write,
    exclusive_directory,
    explain_limits,
    rename,
    write_text,
)
from jaxrag.core.hashing import digest, digest_file
from jaxrag.core.http import TransientError, retry_after
from jaxrag.core.json_text import read_json_object
from jaxrag.core.packed_files import open_member
from jaxrag.core.progress import progress
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")

_HUB = "hf:"
_PACKED = (".gz", ".bz2", ".xz")
_CHUNK = 1 << 20
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}  # status codes that are retried
_TIMEOUT = 60.0  # seconds without a byte
_PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)  # seconds between attempts that got nothing


def published_name(address: str) -> str:
    """The name of the file at an address, as published; of the hub's with its folder."""
    place, _, member = address.partition("#")
    if member:
        return member
    if place.startswith(_HUB):
        return place.rpartition(":")[2]
    return place.split("?")[0].rpartition("/")[2] if is_address(place) else place


def is_address(address: str) -> bool:
    """Whether the file can be downloaded."""
    return address.startswith((_HUB, "https://", "http://"))


class Downloads:
    """Local paths of published files.

    Downloaded and unpacked files go to ``directory``; with ``source``, the directory of files that
    the user has, nothing is downloaded. ``pauses`` are seconds between attempts that got nothing.
    """

    def __init__(
        self, directory: Path, source: Path | None = None, *, pauses: tuple[float, ...] = _PAUSES
    ) -> None:
        if source is not None and not source.is_dir():
            raise InputError(f"--source is {source}, which is not a directory")
        self.directory, self.source, self._pauses = Path(directory), source, pauses
        self._compared: dict[str, Path] = {}  # an archive has files of several splits

    def get(self, address: str, *, unpack: bool = True) -> Path | None:
        """The path of a published file, which may be packed (`core.packed_files`).

        Without ``unpack``, of one in an archive the archive's path. None if the source directory
        has neither. InputError if the address does not give the file, or another one than is
        recorded, or the disk is full.
        """
        place, _, member = address.partition("#")
        if self.source is None:
            path = self._compared.get(place) or self._download(place)
            self._compared[place] = path
        else:
            path = find_file(self.source, published_name(address))
            if path is not None or not member:
                return path
            path = find_file(self.source, published_name(place))
        if path is None or not member or not unpack:
            return path
        return _extract_member(path, member, self.directory)

    def _download(self, address: str) -> Path:
        with exclusive_directory(self.directory):
            file = self.directory / "downloads.json"
            record: dict[str, Any] = {}
            if file.is_file():
                way_out = "remove it, and the files beside it are recorded again"
                record = read_json_object(file, what="a record of downloads", way_out=way_out)
            entry = record.get(address, {})
            if address.startswith(_HUB):
                path, facts = _from_hub(address, entry.get("commit"))
            else:
                path, facts = self.directory / published_name(address), {}
                if not path.is_file():
                    with explain_limits(path):
                        _fetch(address, path, self._pauses)
            facts |= {"bytes": path.stat().st_size, "sha256": digest_file(path)}
            for name in ("bytes", "sha256"):
                if entry.get(name, facts[name]) != facts[name]:
                    raise InputError(
                        f"{path} has {name} {facts[name]}, but {file} has {name} {entry[name]} of "
                        f"{address}: the published file, or this copy of it, has changed. Remove "
                        "this copy to download it again, and the record to use another version"
                    )
            if not entry:
                facts["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                record[address] = facts
                write_text(file, json.dumps(record, indent=1, sort_keys=True))
        return path


def _from_hub(address: str, commit: str | None) -> tuple[Path, dict[str, Any]]:
    """A file of a data set of the hub, as of a commit (None: the newest), and its commit."""
    from huggingface_hub import hf_hub_download

    name, _, file = address.removeprefix(_HUB).partition(":")
    try:
        path = Path(hf_hub_download(name, file, repo_type="dataset", revision=commit))
    except (OSError, ValueError) as error:  # base classes of the hub's errors
        raise InputError(
            f"Cannot download {file} of {name} from the Hugging Face hub "
            f"({' '.join(str(error).split())}): run the same command again, or get the file in "
            "another way and give --source=DIR"
        ) from error
    return path, {"commit": path.parts[path.parts.index("snapshots") + 1]}


def find_file(directory: Path, name: str) -> Path | None:
    """The file of a published name in a directory or its sub-folders; None if it is not there.

    A packed form (name.gz) serves too, and for the name of a packed file its unpacked form. A name
    with a folder ("nq/train.jsonl") is looked for in folders of that name, and without the folder
    in the directory itself. InputError if several folders, equally deep, have the file.
    """
    plain = next((name.removesuffix(s) for s in _PACKED if name.endswith(s)), name)
    forms = dict.fromkeys((name, plain, *(plain + suffix for suffix in _PACKED)))
    for form in forms:
        direct = directory / form.rpartition("/")[2]
        if direct.is_file():
            return direct
    for form in forms:
        paths = sorted(path for path in directory.rglob(form) if path.is_file())
        if paths:
            depth = min(len(path.parts) for path in paths)
            nearest = [path for path in paths if len(path.parts) == depth]
            if len(nearest) > 1:
                raise InputError(
                    f"{directory} has {form} in several folders ({nearest[0].parent}, "
                    f"{nearest[1].parent}): give --source=DIR the right one"
                )
            return nearest[0]
    return None


def _extract_member(archive: Path, name: str, directory: Path) -> Path | None:
    """A file of a zip or tar archive, unpacked below a directory once; None if there is none."""
    stat = archive.stat()
    mark = digest(f"{archive.absolute()} {stat.st_size} {stat.st_mtime_ns}")[:16]
    path = directory / "unpacked" / mark / name
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_member(archive, name) as content:
        if content is None:
            return None
        with atomic_write(path) as stream:
            shutil.copyfileobj(content, stream, _CHUNK)
    return path


def _fetch(address: str, path: Path, pauses: tuple[float, ...]) -> None:
    """Downloads a file; goes on with what an earlier process left, and after failures."""
    part, failures, most = path.with_name(f"{path.name}.part"), 0, 0
    with httpx.Client(follow_redirects=True, timeout=_TIMEOUT) as client:
        while True:
            try:
                _attempt(client, address, part)
                break
            except (httpx.TransportError, TransientError) as error:
                size = part.stat().st_size if part.is_file() else 0
                failures, most = (0, size) if size > most else (failures + 1, most)
                if failures > len(pauses):
                    raise InputError(
                        f"{address} cannot be downloaded ({type(error).__name__}: {error}); "
                        f"{size:,} bytes are kept: run the same command again, or get the file in "
                        "another way and give --source=DIR"
                    ) from None
                _log.warning("%s: %s; trying again", address, error)
                pause = getattr(error, "pause", None)
                time.sleep(pauses[max(0, failures - 1)] if pause is None else pause)
    rename(part, path)
    _version_file(part).unlink()


def _version_file(part: Path) -> Path:
    """The file with the version of a partial download: its ETag or date, for If-Range."""
    return part.with_name(f"{part.name}.version")


def _attempt(client: httpx.Client, address: str, part: Path) -> None:
    """Receives a file; if the server still has the version of a part, only what that lacks."""
    mark, start, headers = _version_file(part), 0, {"Accept-Encoding": "identity"}
    version = mark.read_text("utf-8") if mark.is_file() and part.is_file() else ""
    if version and (start := part.stat().st_size):
        headers |= {"Range": f"bytes={start}-", "If-Range": version}
    with client.stream("GET", address, headers=headers) as response:
        status, received = response.status_code, _version(response.headers)
        place = response.headers.get("Content-Range", "")
        if status == 416 and place == f"bytes */{start}":
            return  # the part is whole
        if status in _TRANSIENT:
            raise TransientError(f"the server answers {status}", pause=retry_after(response))
        begins = status == 206 and place.startswith(f"bytes {start}-")
        if status == 416 or (status == 206 and not (begins and received in ("", version))):
            part.unlink()
            raise TransientError("the server sends another file or part; beginning anew")
        if status not in (200, 206):
            raise InputError(
                f"{address} answers {status}: the file is not there any more, or not for everyone; "
                "get it in another way and give --source=DIR"
            )
        if status == 200:
            part.unlink(missing_ok=True)
            write_text(mark, received)
        _receive(response, part)


def _version(headers: Mapping[str, str]) -> str:
    """What If-Range compares: a strong ETag, or the date of the last change."""
    tag = headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")


def _receive(response: httpx.Response, part: Path) -> None:
    """Adds what the server sends to a part."""
    with part.open("ab") as stream:
        done = stream.tell()
        total = done + int(response.headers.get("Content-Length", 0))
        label = f"downloading {part.stem} (MiB)"
        with progress(max(1, total // _CHUNK), label, done=done // _CHUNK) as advance:
            for data in response.iter_raw(_CHUNK):
                before = stream.tell() // _CHUNK
                stream.write(data)
                advance(stream.tell() // _CHUNK - before)
