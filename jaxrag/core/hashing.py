"""Hashes of texts, bytes and files (SHA-256 but for `hash64`), and canonical JSON to hash."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from pathlib import Path
from typing import Any

from jaxrag.core.durable_files import write_text
from jaxrag.core.json_text import parse_json

_SETTLED = 2.0  # seconds after which a change of a file has surely changed its time


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
    found = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(found.digest(), "little")


def digest_file(path: Path) -> str:
    """SHA-256 (hex) of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_file_once(path: Path, records: Path) -> str:
    """SHA-256 (hex) of a file's content, kept in a directory and hashed again if it has changed.

    A file with the absolute path, size, modification time (in ns) and inode of its record is not
    read. No record is kept of a file that was modified in the last two seconds: it may change
    again within the resolution of its time.

    Args:
      path: the file.
      records: directory of the records, made if need be.
    """
    path = Path(path).absolute()
    state = _file_state(path)
    record = records / f"{digest(str(path))[:16]}.json"
    try:
        known = parse_json(record.read_bytes())
        if known["file"] == state:
            return str(known["sha256"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass  # hashed again
    settled = time.time() - path.stat().st_mtime > _SETTLED
    found = digest_file(path)
    if settled and _file_state(path) == state:
        records.mkdir(parents=True, exist_ok=True)
        write_text(record, json.dumps({"file": state, "sha256": found}, ensure_ascii=False))
    return found


def _file_state(path: Path) -> dict[str, Any]:
    stat = path.stat()
    return {
        "path": str(path),
        "bytes": stat.st_size,
        "modified_ns": stat.st_mtime_ns,
        "inode": stat.st_ino,
    }


def digest_bytes(data: bytes) -> str:
    """SHA-256 (hex) of bytes."""
    return hashlib.sha256(data).hexdigest()


def in_share(text: str, share: float) -> bool:
    """Whether a text, such as a question's id, is in a pseudo-random share (0 to 1) of all texts.

    Depends only on the text (CRC-32), so that all tables hold out the same questions.
    """
    return zlib.crc32(text.encode()) / 2**32 < share
