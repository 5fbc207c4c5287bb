"""SHA-256 hashes of texts, bytes and files, and canonical JSON to hash."""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import Any


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


def digest_file(path: Path) -> str:
    """SHA-256 (hex) of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_bytes(data: bytes) -> str:
    """SHA-256 (hex) of bytes."""
    return hashlib.sha256(data).hexdigest()


def in_share(text: str, share: float) -> bool:
    """Whether a text, such as a question's id, is in a pseudo-random share (0 to 1) of all texts.

    Depends only on the text (CRC-32), so that all tables hold out the same questions.
    """
    return zlib.crc32(text.encode()) / 2**32 < share
