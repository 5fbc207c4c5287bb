"""Published files: found in a directory of the user, or downloaded, resumed and checked.

Downloaded files lie in one directory with ``downloads.json``, the record of their addresses, sizes
and SHA-256. Nothing is downloaded but by `Downloads.get`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx

from jaxrag.core.durable_files import (
    atomic_write,
    exclusive_directory,
    explain_full_disk,
    rename,
    write_text,
)
from jaxrag.core.hashing import digest_file
from jaxrag.core.http import retry_after
from jaxrag.core.json_text import parse_json
from jaxrag.core.packed_files import open_member
from jaxrag.core.progress import progress
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")

_RECORD = "downloads.json"
_PACKED = (".gz", ".bz2", ".xz")
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2")
_CHUNK = 1 << 20
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}  # status codes that are retried
_TIMEOUT = 60.0  # seconds without a byte
_PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)  # seconds between attempts that got nothing
_BAD_ARCHIVE = (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError)


class Known(NamedTuple):
    """Size and SHA-256 (hex) that a published file has."""

    bytes: int
    sha256: str


class Downloads:
    """Local paths of published files.

    Args:
      directory: of downloaded and unpacked files; made if need be.
      source: directory of files that the user has; then nothing is downloaded.
      known: sizes and hashes of files by their addresses, where they are published.
      pauses: seconds to wait after attempts to download that got nothing; after the last, give up.

    Raises:
      InputError: ``source`` is not a directory.
    """

    def __init__(
        self,
        directory: Path,
        source: Path | None = None,
        *,
        known: Mapping[str, Known] | None = None,
        pauses: tuple[float, ...] = _PAUSES,
    ) -> None:
        if source is not None and not source.is_dir():
            raise InputError(f"--source is {source}, which is not a directory")
        self.directory, self.source = Path(directory), source
        self._known, self._pauses = dict(known or {}), pauses

    def get(self, name: str, address: str, *, members: bool = True) -> Path | None:
        """The path of a published file, which may be packed (`core.packed_files`).

        Args:
          name: as published; with a folder in front ("nq/train.jsonl") it is looked for in folders
            of that name and in the source directory itself.
          address: of the file, or of an archive that has it.
          members: unpack the file from such an archive; otherwise give the archive's path.

        Returns:
          None if the source directory has neither the file nor the archive.

        Raises:
          InputError: the address does not give the file, or another one than is known or recorded;
            or the disk is full.
        """
        archive = archive_of(name, address)
        if self.source is None and not address:
            raise InputError(
                f"{name} has no address from which it can be downloaded: get it from the set's "
                "page and give its directory with --source=DIR"
            )
        if self.source is None:
            path = self._download(address)
        else:
            path = find_file(self.source, name)
            if path is not None or not archive:
                return path
            path = find_file(self.source, archive)
        if path is None or not archive or not members:
            return path
        return extract_member(path, name, self.directory)

    def _download(self, address: str) -> Path:
        path = self.directory / _file_name(address)
        with exclusive_directory(self.directory):
            record = self._read_record()
            entry = record.get(address)
            if entry is not None and path.is_file():
                _check(path, Known(entry["bytes"], entry["sha256"]), "recorded")
                return path
            expected = self._known.get(address)
            if expected is None and entry is not None:
                expected = Known(entry["bytes"], entry["sha256"])
            found = _Fetch(address, path, expected, self._pauses).run()
            record[address] = {
                "file": path.name,
                **found._asdict(),
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            write_text(self.directory / _RECORD, json.dumps(record, indent=1, sort_keys=True))
        return path

    def _read_record(self) -> dict[str, Any]:
        path = self.directory / _RECORD
        if not path.is_file():
            return {}
        try:
            return dict(parse_json(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{path}: not a record of downloads ({error}); remove it, and the files beside it "
                "are downloaded again"
            ) from None


def extract_member(archive: Path, name: str, directory: Path) -> Path | None:
    """A file of a zip or tar archive, unpacked below a directory once; None if there is none.

    Raises:
      InputError: the archive is cut short or damaged, or the disk is full.
    """
    stat = archive.stat()
    mark = hashlib.sha256(f"{archive.absolute()} {stat.st_size} {stat.st_mtime_ns}".encode())
    path = directory / "unpacked" / mark.hexdigest()[:16] / name
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with _explain_archive(archive), open_member(archive, name) as content:
        if content is None:
            return None
        with atomic_write(path) as stream:
            shutil.copyfileobj(content, stream, _CHUNK)
    return path


def find_file(directory: Path, name: str) -> Path | None:
    """The file of a published name in a directory or its sub-folders; None if it is not there.

    A packed form (name.gz) serves too, and for the name of a packed file its unpacked form. A name
    with a folder ("nq/train.jsonl") is looked for in folders of that name, and without the folder
    in the directory itself.

    Raises:
      InputError: several folders, equally deep, have the file.
    """
    plain = next((name.removesuffix(s) for s in _PACKED if name.endswith(s)), name)
    forms = dict.fromkeys((name, plain, *(plain + suffix for suffix in _PACKED)))
    for form in forms:
        direct = directory / form.rpartition("/")[2]
        if direct.is_file():
            return direct
    for form in forms:
        found = sorted(path for path in directory.rglob(form) if path.is_file())
        if found:
            depth = min(len(path.parts) for path in found)
            nearest = [path for path in found if len(path.parts) == depth]
            if len(nearest) > 1:
                raise InputError(
                    f"{directory} has {form} in several folders ({nearest[0].parent}, "
                    f"{nearest[1].parent}): give --source=DIR the right one"
                )
            return nearest[0]
    return None


@contextlib.contextmanager
def _explain_archive(archive: Path) -> Iterator[None]:
    try:
        yield
    except _BAD_ARCHIVE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise InputError(
            f"{archive}: the archive is cut short or damaged ({error}); get it again"
        ) from None


def archive_of(name: str, address: str) -> str:
    """The file name of the archive at an address, if the file is a member of it; else ""."""
    file = _file_name(address)
    is_archive = file.lower().endswith(_ARCHIVES)
    return file if is_archive and file != name.rpartition("/")[2] else ""


def _file_name(address: str) -> str:
    """A file name for an address: its own last part, or a hash where it has none."""
    last = address.split("?")[0].split("#")[0].rstrip("/").rpartition("/")[2]
    if "." in last and not last.startswith("."):
        return last
    return f"{last}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"


def _check(path: Path, expected: Known, how: str) -> None:
    size = path.stat().st_size
    found = digest_file(path) if size == expected.bytes else ""
    if found != expected.sha256:
        shown = f"SHA-256 {found}" if found else f"{size:,} bytes"
        wanted = f"SHA-256 {expected.sha256}" if found else f"{expected.bytes:,} bytes"
        raise InputError(
            f"{path} has {shown}, but {wanted} {how}: remove the file, and it is downloaded again"
        )


class _Fetch:
    """One download: goes on with what an earlier one left, and tries again after failures."""

    def __init__(
        self, address: str, path: Path, expected: Known | None, pauses: tuple[float, ...]
    ) -> None:
        self._address, self._path, self._expected = address, path, expected
        self._pauses = pauses
        self._partial = path.with_name(path.name + ".part")
        self._about = path.with_name(path.name + ".part.json")

    def run(self) -> Known:
        """Downloads the file.

        Raises:
          InputError: the address refuses or does not answer, gives another file than is expected,
            or the disk is full. What is there of the right file is kept for the next time.
        """
        failures = 0
        with (
            explain_full_disk(self._path),
            httpx.Client(follow_redirects=True, timeout=_TIMEOUT) as client,
        ):
            while True:
                before = self._size()
                try:
                    if self._attempt(client):
                        return self._finish()
                    error: Exception | str = "the connection broke off"
                    pause = None
                except httpx.TransportError as failure:
                    error, pause = f"{type(failure).__name__}: {failure}", None
                except _Busy as failure:
                    error, pause = str(failure), failure.pause
                failures = 0 if self._size() > before else failures + 1
                if failures > len(self._pauses):
                    raise InputError(
                        f"{self._address} cannot be downloaded ({error}); {self._size():,} bytes "
                        "are kept: run the same command again, or get the file in another way and "
                        "give --source=DIR"
                    )
                _log.warning("%s: %s; trying again", self._address, error)
                time.sleep(pause or self._pauses[max(0, failures - 1)] if self._pauses else 0.0)

    def _size(self) -> int:
        return self._partial.stat().st_size if self._partial.is_file() else 0

    def _attempt(self, client: httpx.Client) -> bool:
        """Downloads what is missing; whether the file is whole.

        Without a version to compare, bytes of an earlier attempt are kept only if a hash is known.
        """
        start, about = self._size(), self._begun()
        headers = {"Accept-Encoding": "identity"}
        if start and about and (about.get("version") or self._expected):
            headers["Range"] = f"bytes={start}-"
            if about.get("version"):
                headers["If-Range"] = about["version"]
        else:
            start = 0
        with client.stream("GET", self._address, headers=headers) as response:
            start, total = self._begin(response, start, about)
            if total == start and response.status_code == 416:
                return True
            self._receive(response, start, total)
        return total is None or self._size() == total

    def _begun(self) -> dict[str, Any]:
        """What an unfinished download is of; empty if it is of another address."""
        try:
            about = parse_json(self._about.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        known = isinstance(about, dict) and about.get("address") == self._address
        return about if known else {}

    def _begin(
        self, response: httpx.Response, start: int, about: Mapping[str, Any]
    ) -> tuple[int, int | None]:
        """Where the response's bytes belong, and the file's size if the server tells it."""
        status = response.status_code
        if status in _TRANSIENT:
            raise _Busy(f"the server answers {status}", retry_after(response))
        if status == 416 and start:  # nothing is left, or the file is another one now
            total = _total(response)
            if total == start:
                return start, total
            self._forget()
            raise _Busy("the file has become shorter; beginning anew", None)
        if status not in (200, 206):
            raise InputError(
                f"{self._address} answers {status}: the file is not there any more, or not for "
                "everyone; get it in another way and give --source=DIR"
            )
        total = _total(response)
        if status == 206 and _first_byte(response) != start:
            self._forget()
            raise _Busy("the server sends another part than was requested; beginning anew", None)
        now = {"bytes": total, "version": _version(response)}
        if status == 200:
            start = 0
            self._partial.unlink(missing_ok=True)  # before the record names another version
        elif any(now[name] and about.get(name) not in ("", None, now[name]) for name in now):
            self._forget()
            raise _Busy("the file has changed; beginning anew", None)
        else:
            now["version"] = about.get("version") or now["version"]
        self._check_size(total, start)
        self._about.write_text(json.dumps({"address": self._address, **now}))
        return start, total

    def _check_size(self, total: int | None, start: int) -> None:
        if total is None:
            return
        if self._expected is not None and total != self._expected.bytes:
            raise InputError(
                f"{self._address} has {total:,} bytes, but {self._expected.bytes:,} are expected "
                f"(SHA-256 {self._expected.sha256}): the published file has changed. To use the "
                "new one, get it and give --source=DIR"
            )
        free = shutil.disk_usage(self._path.parent).free
        if free < total - start:
            raise InputError(
                f"{self._path.parent} needs {(total - start) / 1e9:,.2f} GB for {self._address}, "
                f"its disk has {free / 1e9:,.2f} GB left; free some space or give another --workdir"
            )

    def _receive(self, response: httpx.Response, start: int, total: int | None) -> None:
        with self._partial.open("r+b" if start else "wb") as stream:
            stream.seek(start)
            stream.truncate()
            # megabytes, since the sizes of files differ by five orders of magnitude
            size = max(1, (total or 0) // _CHUNK)
            label = f"downloading {self._path.name} (MiB)"
            with progress(size, label, done=start // _CHUNK) as advance:
                received = start
                for data in response.iter_raw(_CHUNK):
                    stream.write(data)
                    whole = (received + len(data)) // _CHUNK - received // _CHUNK
                    received += len(data)
                    advance(whole)

    def _finish(self) -> Known:
        found = Known(self._size(), digest_file(self._partial))
        if self._expected is not None and found != self._expected:
            self._forget()
            raise InputError(
                f"{self._address} gives a file of {found.bytes:,} bytes with SHA-256 "
                f"{found.sha256}, but {self._expected.bytes:,} bytes with SHA-256 "
                f"{self._expected.sha256} are expected: the published file has changed. To use the "
                "new one, get it and give --source=DIR"
            )
        rename(self._partial, self._path)
        self._about.unlink(missing_ok=True)
        return found

    def _forget(self) -> None:
        self._partial.unlink(missing_ok=True)
        self._about.unlink(missing_ok=True)


class _Busy(Exception):
    """A failure to try again after, perhaps after a pause that the server requests."""

    def __init__(self, message: str, pause: float | None) -> None:
        super().__init__(message)
        self.pause = pause


def _version(response: httpx.Response) -> str:
    """What If-Range compares: a strong ETag, or the date of the last change."""
    tag = response.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")


def _total(response: httpx.Response) -> int | None:
    """Size of the whole file."""
    text = response.headers.get("Content-Range", "").rpartition("/")[2]
    if response.status_code == 200:
        text = response.headers.get("Content-Length", "")
    return int(text) if text.isdigit() else None


def _first_byte(response: httpx.Response) -> int:
    text = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(text) if text.isdigit() else -1
