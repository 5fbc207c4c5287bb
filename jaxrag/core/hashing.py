"""Hashes of texts, bytes and files (SHA-256 but for `hash64`), and canonical JSON to hash."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from jaxrag.core.durable_files import write_text
from jaxrag.core.file_states import FileState, check_unchanged
from jaxrag.core.json_text import parse_json

Item = TypeVar("Item")


def canonical(value: Any) -> str:
    """``value`` as canonical JSON: sorted keys, no spaces; ValueError for NaN and infinity."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )


def digest(*parts: str) -> str:
    """SHA-256 (hex) of texts, each hashed with its length: ("ab", "c") and ("a", "bc") differ."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def hash64(text: str) -> int:
    """64-bit hash (BLAKE2b) of a text, to tell millions of texts apart in little memory."""
    blake = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(blake.digest(), "little")


def digest_file(path: Path) -> str:
    """SHA-256 (hex) of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class HashedFile(NamedTuple):
    """A file's state before it was hashed, and the SHA-256 (hex) of its content."""

    state: FileState
    sha256: str


def hashed_once(path: Path, records: Path) -> HashedFile:
    """Hashes a file, unless its record in ``records`` has its present, settled `FileState`."""
    state = FileState.of(path)
    settled, record = state.settled, records / f"{digest(state.path)[:16]}.json"
    try:
        stored = parse_json(record.read_bytes())
        if stored["file"] == state._asdict():
            return HashedFile(state, str(stored["sha256"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass  # hashed again
    sha256 = digest_file(path)
    if settled and FileState.of(path) == state:
        records.mkdir(parents=True, exist_ok=True)
        entry = {"file": state._asdict(), "sha256": sha256}
        write_text(record, json.dumps(entry, ensure_ascii=False))
    return HashedFile(state, sha256)


def read_as_hashed(items: Iterable[Item], files: Iterable[HashedFile]) -> Iterator[Item]:
    """Yields items that are read from files; InputError after the last if a file has changed."""
    yield from items
    check_unchanged(file.state for file in files)


def digest_bytes(data: bytes) -> str:
    """SHA-256 (hex) of bytes."""
    return hashlib.sha256(data).hexdigest()


def in_share(text: str, share: float) -> bool:
    """Whether a text, such as an id, is in a pseudo-random share (0 to 1) of all, by its CRC-32."""
    return zlib.crc32(text.encode()) / 2**32 < share
